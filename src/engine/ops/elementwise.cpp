#include <algorithm>

#include "engine/arith.h"

namespace kaon {

namespace {

bool is_signed_integer(const at::Tensor& x) {
  return at::isIntegralType(x.scalar_type(), /*includeBool=*/false) && x.scalar_type() != at::kByte;
}

/// Applies an unsigned 64-bit function element by element; int64 carries the bits.
template <typename Function>
at::Tensor unsigned_binary(const at::Tensor& a, const at::Tensor& b, Function function) {
  const std::vector<at::Tensor> pair = at::broadcast_tensors({a, b});
  const at::Tensor x = pair[0].contiguous();
  const at::Tensor y = pair[1].contiguous();
  at::Tensor out = at::empty_like(x);
  const auto* xs = reinterpret_cast<const uint64_t*>(x.data_ptr<int64_t>());
  const auto* ys = reinterpret_cast<const uint64_t*>(y.data_ptr<int64_t>());
  auto* outs = reinterpret_cast<uint64_t*>(out.data_ptr<int64_t>());
  for (int64_t i = 0; i < out.numel(); ++i) outs[i] = function(xs[i], ys[i]);
  return out;
}

uint64_t require_divisor(uint64_t divisor) {
  if (divisor == 0) fail(ErrorCode::InvalidInput, "input 1", "an integer is divided by zero");
  return divisor;
}

at::Tensor divide(const at::Tensor& a, const at::Tensor& b, DType type) {
  if (at::isFloatingType(a.scalar_type())) return at::div(a, b);
  if (type == DType::UInt64) {
    return unsigned_binary(a, b, [](uint64_t x, uint64_t y) { return x / require_divisor(y); });
  }
  if (!is_signed_integer(b)) return at::div(a, b, "trunc");
  // The lowest integer divided by -1 traps on x86.
  const at::Tensor minus_one = b.eq(-1);
  return at::where(minus_one, a.neg(), at::div(a, b.masked_fill(minus_one, 1), "trunc"));
}

at::Tensor modulo(const at::Tensor& a, const at::Tensor& b, DType type, bool sign_of_dividend) {
  if (type == DType::UInt64) {
    return unsigned_binary(a, b, [](uint64_t x, uint64_t y) { return x % require_divisor(y); });
  }
  const at::Tensor divisor = is_signed_integer(b) ? b.masked_fill(b.eq(-1), 1) : b;
  return sign_of_dividend ? at::fmod(a, divisor) : at::remainder(a, divisor);
}

Kernel make_mod(const OpInfo& info) {
  const bool fmod = info.node().get_int("fmod", 0) != 0;
  return [fmod](Call& call) {
    call.out(0, modulo(widen(call.in(0)), widen(call.in(1)), call.type(0), fmod), call.type(0));
  };
}

at::Tensor power(const at::Tensor& base, const at::Tensor& exponent) {
  const bool integers = !at::isFloatingType(base.scalar_type()) && !at::isFloatingType(exponent.scalar_type());
  if (integers) return at::pow(base.to(at::kLong), exponent.to(at::kLong));
  const at::Tensor x = at::isFloatingType(base.scalar_type()) ? base : base.to(at::kDouble);
  // ATen has fast paths for 2, 3, 0.5 and the like, but only for a scalar.
  if (exponent.numel() == 1 && exponent.dim() <= x.dim() && !exponent.requires_grad()) {
    return at::pow(x, exponent.to(at::kDouble).item());
  }
  return at::pow(x, exponent);
}

using Binary = at::Tensor (*)(const at::Tensor&, const at::Tensor&, DType);

KernelMaker binary(Binary function) {
  return [function](const OpInfo& info) -> Kernel {
    return [function, inputs = BinaryInputs(info)](Call& call) {
      const auto [a, b] = inputs(call);
      if (call.shapes_only()) return call.out_zeros(0, at::infer_size(a.sizes(), b.sizes()), call.type(0));
      call.out(0, function(widen(a), widen(b), call.type(0)), call.type(0));
    };
  };
}

/// Folds any number of inputs, from left to right.
Kernel variadic(Binary function, bool mean = false) {
  return [function, mean](Call& call) {
    const DType type = call.type(0);
    if (call.shapes_only()) return broadcast_zeros(call, type);
    at::Tensor total = widen(call.in(0));
    for (size_t i = 1; i < call.input_count(); ++i) total = function(total, widen(call.in(i)), type);
    if (mean) total = total / static_cast<double>(call.input_count());
    call.out(0, total, type);
  };
}

at::Tensor smaller(const at::Tensor& a, const at::Tensor& b, DType type) {
  return flip_order(at::minimum(flip_order(a, type), flip_order(b, type)), type);
}

at::Tensor larger(const at::Tensor& a, const at::Tensor& b, DType type) {
  return flip_order(at::maximum(flip_order(a, type), flip_order(b, type)), type);
}

at::Tensor sum(const at::Tensor& a, const at::Tensor& b, DType) { return at::add(a, b); }

Kernel make_clip(const OpInfo& info) {
  if (info.opset() < 11) {
    c10::optional<at::Scalar> low;
    c10::optional<at::Scalar> high;
    if (info.node().find("min") != nullptr) low = info.node().get_float("min", 0);
    if (info.node().find("max") != nullptr) high = info.node().get_float("max", 0);
    return unary([low, high](const at::Tensor& x) { return low || high ? at::clamp(x, low, high) : x; });
  }
  return [](Call& call) {
    const DType type = call.type(0);
    if (call.shapes_only()) return call.out_zeros(0, call.in(0).sizes(), type);
    at::Tensor x = widen(call.in(0));
    if (type == DType::UInt64) {
      if (call.has(1)) x = larger(x, call.in(1), type);
      if (call.has(2)) x = smaller(x, call.in(2), type);
    } else if (call.has(1) || call.has(2)) {
      c10::optional<at::Scalar> low;
      c10::optional<at::Scalar> high;
      if (call.has(1)) low = call.in(1).item();
      if (call.has(2)) high = call.in(2).item();
      // hardtanh is the same function with a gradient twenty times as fast.
      const bool as_hardtanh = x.requires_grad() && low && high && low->toDouble() < high->toDouble();
      x = as_hardtanh ? at::hardtanh(x, *low, *high) : at::clamp(x, low, high);
    }
    call.out(0, x, type);
  };
}

Kernel make_dropout(const OpInfo& info) {
  const bool bool_mask = info.opset() >= 10;
  return [bool_mask](Call& call) {
    const bool training = call.has(2) && call.in(2).item<bool>();
    const double ratio = call.has(1) ? call.in(1).item<double>() : 0.5;
    if (training && ratio != 0) {
      fail(ErrorCode::Unsupported, "training_mode", "Dropout runs in inference mode only");
    }
    call.out(0, call.value(0));
    if (call.wants(1)) {
      call.out(1, at::ones(call.in(0).sizes(), at::kBool), bool_mask ? DType::Bool : call.type(0));
    }
  };
}

// A shift by the whole width or more, which C++ does not define, leaves nothing but the sign.
uint64_t shift_left(uint64_t x, uint64_t n) { return n < 64 ? x << n : 0; }
uint64_t shift_right(uint64_t x, uint64_t n) { return n < 64 ? x >> n : 0; }
uint64_t shift_right_signed(uint64_t x, uint64_t n) {
  return static_cast<uint64_t>(static_cast<int64_t>(x) >> std::min<uint64_t>(n, 63));
}

Kernel make_bit_shift(const OpInfo& info) {
  const std::string direction = info.node().get_string("direction", "");
  if (direction != "LEFT" && direction != "RIGHT") {
    info.unsupported(fmt::format("direction '{}'; LEFT and RIGHT are known", direction));
  }
  const bool left = direction == "LEFT";
  return [left](Call& call) {
    const DType type = call.type(0);
    const at::Tensor a = call.in(0).to(at::kLong);
    const at::Tensor b = call.in(1).to(at::kLong);
    const auto function = left ? shift_left : type == DType::UInt64 ? shift_right : shift_right_signed;
    call.out(0, unsigned_binary(a, b, function), type);
  };
}

Kernel bitwise(at::Tensor (*function)(const at::Tensor&, const at::Tensor&)) {
  return [function](Call& call) { call.out(0, function(call.in(0), call.in(1)), call.type(0)); };
}

void register_functions(OpRegistry& ops) {
  const auto add = [&](const char* name, at::Tensor (*function)(const at::Tensor&),
                       Homogeneous homogeneous = Homogeneous::No) {
    ops.add_simple(name, unary(function), per_sample().with(homogeneous));
  };
  add("Neg", at::neg, Homogeneous::Channels);
  add("Abs", at::abs, Homogeneous::Channels);
  add("Sign", at::sign);
  add("Floor", at::floor);
  add("Ceil", at::ceil);
  add("Round", at::round);
  add("Sqrt", at::sqrt);
  add("Reciprocal", at::reciprocal);
  add("Exp", at::exp);
  add("Log", at::log);
  add("Erf", at::erf);
  add("Sin", at::sin);
  add("Cos", at::cos);
  add("Tan", at::tan);
  add("Asin", at::asin);
  add("Acos", at::acos);
  add("Atan", at::atan);
  add("Sinh", at::sinh);
  add("Cosh", at::cosh);
  add("Asinh", at::asinh);
  add("Acosh", at::acosh);
  add("Atanh", at::atanh);
}

}  // namespace

void register_elementwise(OpRegistry& ops) {
  register_functions(ops);
  ops.add("Add", binary(sum), broadcasting().with(FlowKind::Computes));
  ops.add("Sub", binary([](const at::Tensor& a, const at::Tensor& b, DType) { return at::sub(a, b); }), broadcasting());
  ops.add("Mul", binary([](const at::Tensor& a, const at::Tensor& b, DType) { return at::mul(a, b); }),
          broadcasting().with(FlowKind::Computes));
  ops.add("Div", binary(divide), broadcasting());
  ops.add("Pow", binary([](const at::Tensor& a, const at::Tensor& b, DType) { return power(a, b); }), broadcasting());
  ops.add("Mod", make_mod, broadcasting());
  ops.add_simple("Min", variadic(smaller), broadcasting());
  ops.add_simple("Max", variadic(larger), broadcasting());
  ops.add_simple("Sum", variadic(sum), broadcasting());
  ops.add_simple("Mean", variadic(sum, /*mean=*/true), broadcasting());
  ops.add("Clip", make_clip, per_sample().that_clips());
  ops.add("BitShift", make_bit_shift, broadcasting());
  ops.add_simple("BitwiseAnd", bitwise(at::bitwise_and), broadcasting());
  ops.add_simple("BitwiseOr", bitwise(at::bitwise_or), broadcasting());
  ops.add_simple("BitwiseXor", bitwise(at::bitwise_xor), broadcasting());
  ops.add_simple(
      "BitwiseNot", [](Call& call) { call.out(0, at::bitwise_not(call.in(0)), call.type(0)); }, per_sample());
  ops.add_simple(
      "Identity", [](Call& call) { call.out(0, call.value(0)); },
      per_sample().with(Homogeneous::Channels).with(FlowKind::Moves));
  ops.add("Dropout", make_dropout, per_sample().with(Homogeneous::Channels));
}

}  // namespace kaon
