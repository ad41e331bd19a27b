// Convolutions and matrix products of codes. The integer sums are exact: in float32 where none can reach 2^24, else in
// float64.
#include <cmath>
#include <mutex>

#include "engine/affine.h"
#include "engine/cast.h"
#include "engine/spatial.h"

namespace kaon {

namespace {

/// A vector of the left operand's rows stands across its columns; other shapes broadcast as they are.
at::Tensor by_row(const at::Tensor& parameter) {
  return parameter.defined() && parameter.dim() == 1 && parameter.numel() > 1 ? parameter.unsqueeze(-1) : parameter;
}

at::Tensor scale_of(const Call& call, size_t input) { return to_float(call.value(input)); }

at::Tensor one_number(const at::Tensor& parameter) {
  return parameter.defined() && parameter.numel() == 1 ? parameter.reshape({}) : parameter;
}

/// An exact sum times its scale, in float32 as ONNX Runtime rounds it.
at::Tensor rescale(const at::Tensor& sum, const at::Tensor& scale) {
  return (sum.scalar_type() == at::kFloat ? sum : wrapped_sum(sum).to(at::kFloat)) * one_number(scale);
}

/// Codes without their zero point, as float32, which holds up to 16 bits of them exactly.
at::Tensor numbers_of(const Value& codes, const at::Tensor& zero) {
  const at::Tensor numbers = cast(codes, DType::Float32).tensor;
  return zero.defined() ? numbers - zero.to(at::kFloat) : numbers;
}

/// The right operands of a product as numbers, and how large a sum over one column (or output channel) of magnitudes
/// gets. A constant is made ready once.
class Weights {
 public:
  struct Ready {
    at::Tensor numbers;
    double magnitude = 0;
  };
  /// `prepare` gives the numbers, `columns` their magnitudes summed for each result.
  template <typename Prepare, typename Columns>
  Ready get(const Value& codes, const at::Tensor& zero, const Prepare& prepare, const Columns& columns) {
    const std::lock_guard lock(mutex_);
    const bool known = codes_.defined() && codes_.is_same(codes.tensor) &&
                       (zero.defined() ? zero_.defined() && at::equal(zero_, zero) : !zero_.defined());
    if (!known) {
      ready_.numbers = prepare();
      const at::Tensor sums = columns(ready_.numbers.to(at::kDouble).abs());
      ready_.magnitude = sums.numel() == 0 ? 0 : sums.max().item<double>();
      codes_ = codes.tensor;  // kept alive, so that the address stands for it
      zero_ = zero;
    }
    return ready_;
  }

 private:
  std::mutex mutex_;
  at::Tensor codes_, zero_;
  Ready ready_;
};

/// The type that holds every partial sum exactly: `codes` times weights of this magnitude, and a bias.
at::ScalarType exact_type(const Value& codes, double magnitude, double bias = 0) {
  const double largest = std::ldexp(1.0, bits_of(codes.type)) - 1;  // of a code less its zero point
  return largest * magnitude + bias < std::ldexp(1.0, 24) ? at::kFloat : at::kDouble;
}

/// sum * scale as codes of the type of the zero point at `zero`.
Value requantize(const Call& call, const at::Tensor& sum, const at::Tensor& scale, size_t zero, DType otherwise) {
  const DType type = call.has(zero) ? call.type(zero) : otherwise;
  return to_codes(rescale(sum, scale), one_number(zero_point(call, zero)), type);
}

at::Tensor matrix_product(Weights& weights, const Value& a, const at::Tensor& a_zero, const Value& b,
                          const at::Tensor& b_zero) {
  const Weights::Ready right = weights.get(
      b, b_zero, [&] { return numbers_of(b, b_zero); },
      [](const at::Tensor& magnitudes) { return magnitudes.sum(magnitudes.dim() > 1 ? -2 : 0); });
  const at::ScalarType type = exact_type(a, right.magnitude);
  return at::matmul(numbers_of(a, a_zero).to(type), right.numbers.to(type));
}

at::Tensor product(Weights& weights, const Call& call, size_t a, size_t a_zero, size_t b, size_t b_zero) {
  return matrix_product(weights, call.value(a), one_number(by_row(zero_point(call, a_zero))), call.value(b),
                        one_number(zero_point(call, b_zero)));
}

/// A kernel with weights to keep.
template <void (*kRun)(Weights&, Call&)>
Kernel with_weights(const OpInfo&) {
  return [weights = std::make_shared<Weights>()](Call& call) { kRun(*weights, call); };
}

void matmul_integer(Weights& weights, Call& call) { call.out(0, wrapped_sum(product(weights, call, 0, 2, 1, 3))); }

void qlinear_matmul(Weights& weights, Call& call) {
  const at::Tensor scale = one_number(by_row(scale_of(call, 1))) * one_number(scale_of(call, 4)) / scale_of(call, 6);
  const at::Tensor sum = product(weights, call, 0, 2, 3, 5);
  call.out(0, requantize(call, sum, scale, 7, call.type(0)));
}

void matmul_integer_to_float(Weights& weights, Call& call) {
  const at::Tensor scale = one_number(by_row(scale_of(call, 2))) * one_number(scale_of(call, 3));
  at::Tensor y = rescale(product(weights, call, 0, 4, 1, 5), scale);
  if (call.has(6)) y = y + to_float(call.value(6));
  call.out(0, y, call.type(2));
}

void dynamic_quantize_matmul(Weights& weights, Call& call) {
  const DynamicCodes a = quantize_dynamic(call.in(0));
  const at::Tensor sum = matrix_product(weights, a.codes, a.zero, call.value(1), one_number(zero_point(call, 3)));
  at::Tensor y = rescale(sum, a.scale * one_number(scale_of(call, 2)));
  if (call.has(4)) y = y + to_float(call.value(4));
  call.out(0, y, call.type(0));
}

Kernel make_qgemm(const OpInfo& info) {
  const float alpha = info.node().get_float("alpha", 1);
  const bool transpose_a = info.node().get_int("transA", 0) != 0;
  const bool transpose_b = info.node().get_int("transB", 0) != 0;
  return [=](Call& call) {
    const auto operand = [&](size_t input, bool transpose) {
      const Value& codes = call.value(input);
      return Value{transpose ? codes.tensor.t() : codes.tensor, codes.type};
    };
    at::Tensor sum = at::mm(centred(operand(0, transpose_a), one_number(zero_point(call, 2))),
                            centred(operand(3, transpose_b), one_number(zero_point(call, 5))));
    // The bias counts in steps of the product.
    if (call.has(6)) sum = sum + call.in(6);
    const at::Tensor scale = one_number(scale_of(call, 1)) * alpha * one_number(scale_of(call, 4));
    if (call.has(7)) {
      call.out(0, requantize(call, sum, scale / one_number(scale_of(call, 7)), 8, call.type(0)));
    } else {
      call.out(0, rescale(sum, scale));
    }
  };
}

class QuantizedConv {
 public:
  explicit QuantizedConv(const OpInfo& info)
      : window_(window_attributes(info.node())),
        groups_(info.node().get_int("group", 1)),
        channels_last_(info.node().get_int("channels_last", 0) != 0) {
    if (groups_ < 1) fail(ErrorCode::InvalidInput, info.node().label(), "'group' must be at least 1, not {}", groups_);
  }

  void integer(Call& call) const { call.out(0, wrapped_sum(sum(call, 0, 2, 1, 3, {}))); }

  void quantized(Call& call) const {
    const at::Tensor bias = call.has(8) ? call.in(8) : at::Tensor();
    const at::Tensor y = sum(call, 0, 2, 3, 5, bias);
    const at::Tensor weight_scale = along_axis(scale_of(call, 4), y.sizes(), 1);
    const at::Tensor scale = one_number(scale_of(call, 1)) * weight_scale / one_number(scale_of(call, 6));
    Value codes = requantize(call, y, scale, 7, call.type(0));
    if (channels_last_) codes.tensor = codes.tensor.movedim(1, -1);
    call.out(0, std::move(codes));
  }

 private:
  at::Tensor sum(const Call& call, size_t x, size_t x_zero, size_t w, size_t w_zero, const at::Tensor& bias) const {
    Value codes = call.value(x);
    if (channels_last_) codes.tensor = codes.tensor.movedim(-1, 1);
    const Value& weight = call.value(w);
    at::Tensor zero = zero_point(call, w_zero);
    if (zero.defined()) zero = along_axis(zero, weight.tensor.sizes(), 0);
    const Weights::Ready ready = weights_->get(
        weight, zero, [&] { return numbers_of(weight, zero); },
        [](const at::Tensor& magnitudes) { return magnitudes.flatten(1).sum(1); });
    const bool biased = bias.defined() && bias.numel() > 0;
    const double largest_bias = biased ? bias.to(at::kDouble).abs().max().item<double>() : 0;
    const at::ScalarType type = exact_type(codes, ready.magnitude, largest_bias);
    return convolve(numbers_of(codes, one_number(zero_point(call, x_zero))).to(type), ready.numbers.to(type),
                    bias.defined() ? bias.to(type) : bias, window_, groups_);
  }

  WindowAttributes window_;
  int64_t groups_;
  bool channels_last_;
  std::shared_ptr<Weights> weights_ = std::make_shared<Weights>();
};

Kernel make_conv_integer(const OpInfo& info) {
  return [conv = QuantizedConv(info)](Call& call) { conv.integer(call); };
}

Kernel make_qlinear_conv(const OpInfo& info) {
  return [conv = QuantizedConv(info)](Call& call) { conv.quantized(call); };
}

}  // namespace

void register_qproduct(OpRegistry& ops) {
  ops.add("MatMulInteger", with_weights<matmul_integer>, fixed_shape());
  ops.add("QLinearMatMul", with_weights<qlinear_matmul>, fixed_shape());
  ops.add("ConvInteger", make_conv_integer, per_sample());
  ops.add("QLinearConv", make_qlinear_conv, per_sample());
  ops.add("QLinearConv", make_qlinear_conv, per_sample(), kMicrosoft);
  ops.add("QGemm", make_qgemm, fixed_shape(), kMicrosoft);
  ops.add("MatMulIntegerToFloat", with_weights<matmul_integer_to_float>, fixed_shape(), kMicrosoft);
  ops.add("DynamicQuantizeMatMul", with_weights<dynamic_quantize_matmul>, fixed_shape(), kMicrosoft);
}

}  // namespace kaon
