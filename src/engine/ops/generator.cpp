// Operators that make tensors from attributes, shapes and positions rather than from the numbers of their inputs.
#include <algorithm>
#include <cmath>

#include "engine/arith.h"
#include "engine/memory_guard.h"

namespace kaon {

namespace {

/// The tensor of a Constant node, whichever attribute holds it.
Tensor constant_of(const OpInfo& info) {
  const Node& node = info.node();
  if (const auto* tensor = node.get_if<Tensor>("value")) return *tensor;
  if (const auto* number = node.get_if<float>("value_float")) return Tensor::scalar(*number);
  if (const auto* number = node.get_if<int64_t>("value_int")) return Tensor::scalar(*number);
  if (const auto* numbers = node.get_if<std::vector<float>>("value_floats")) {
    return Tensor::of({std::ssize(*numbers)}, *numbers);
  }
  if (const auto* numbers = node.get_if<std::vector<int64_t>>("value_ints")) {
    return Tensor::of({std::ssize(*numbers)}, *numbers);
  }
  info.unsupported("a constant of strings, a sparse one, or none; value, value_float(s) and value_int(s) are known");
}

Kernel make_constant(const OpInfo& info) {
  return [value = to_value(constant_of(info))](Call& call) { call.out(0, value); };
}

Kernel make_constant_of_shape(const OpInfo& info) {
  const auto* given = info.node().get_if<Tensor>("value");
  const Value value = to_value(given == nullptr ? Tensor::scalar(0.0F) : *given);
  if (value.tensor.numel() != 1) info.unsupported("the attribute 'value' must hold one element");
  return [value](Call& call) {
    const std::vector<int64_t> shape = call.sizes(0);
    require_room(shape, static_cast<int64_t>(value.tensor.element_size()));
    call.out(0, value.tensor.reshape({}).expand(shape).contiguous(), value.type);
  };
}

Kernel make_eye_like(const OpInfo& info) {
  const int64_t diagonal = info.node().get_int("k", 0);
  const auto given = static_cast<DType>(info.node().get_int("dtype", 0));
  return [=](Call& call) {
    const at::Tensor& like = call.in(0);
    if (like.dim() != 2) fail(ErrorCode::InvalidInput, "input 0", "a matrix is needed, not rank {}", like.dim());
    const at::Tensor difference = at::arange(like.size(1)).unsqueeze(0) - at::arange(like.size(0)).unsqueeze(1);
    call.out(0, difference.eq(diagonal), given == DType::Undefined ? call.type(0) : given);
  };
}

Kernel make_shape(const OpInfo& info) {
  const int64_t start = info.node().get_int("start", 0);
  const int64_t end = info.node().get_int("end", std::numeric_limits<int64_t>::max());
  return [=](Call& call) {
    const at::IntArrayRef sizes = call.in(0).sizes();
    const auto rank = static_cast<int64_t>(sizes.size());
    const auto clamp = [rank](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + rank : i, 0, rank); };
    const int64_t first = clamp(start);
    const int64_t last = std::max(clamp(end), first);
    call.out(0, at::tensor(sizes.slice(static_cast<size_t>(first), static_cast<size_t>(last - first)), at::kLong));
  };
}

void run_range(Call& call) {
  const DType type = call.type(0);
  const double start = call.in(0).item<double>();
  const double limit = call.in(1).item<double>();
  const double delta = call.in(2).item<double>();
  const double count = std::max(std::ceil((limit - start) / delta), 0.0);
  if (!(count < 0x1p48)) {
    fail(ErrorCode::InvalidInput, "delta", "steps of {} from {} to {} never end", delta, start, limit);
  }
  require_room({{static_cast<int64_t>(count)}}, sizeof(int64_t));
  const at::Tensor steps = at::arange(static_cast<int64_t>(count), at::kLong);
  if (at::isFloatingType(call.in(0).scalar_type())) {
    call.out(0, steps.to(at::kDouble) * delta + start, type);
  } else {
    call.out(0, steps * call.in(2).item<int64_t>() + call.in(0).item<int64_t>(), type);
  }
}

void run_size(Call& call) { call.out(0, at::scalar_tensor(call.in(0).numel(), at::kLong)); }

void run_non_zero(Call& call) {
  const at::Tensor& x = call.in(0);
  // A scalar counts as one dimension here.
  call.out(0, at::nonzero(x.dim() == 0 ? x.unsqueeze(0) : x).t().contiguous());
}

Kernel make_unique(const OpInfo& info) {
  const bool sorted = info.node().get_int("sorted", 1) != 0;
  const bool flat = info.node().find("axis") == nullptr;
  const int64_t given = info.node().get_int("axis", 0);
  return [=](Call& call) {
    const DType type = call.type(0);
    at::Tensor x = flip_order(widen(call.in(0)), type);
    if (flat) x = x.flatten();
    const int64_t axis = wrap_axis(given, x.dim());
    const at::TensorOptions indices = at::TensorOptions(at::kLong);
    if (x.numel() == 0) {
      call.out(0, x, type);
      for (size_t i = 1; i < 4; ++i) call.out(i, at::empty({0}, indices));
      return;
    }
    auto [values, inverse, counts] = at::unique_dim(x, axis, /*sorted=*/true, true, true);
    // Sorted by value, stably, each group begins with its first occurrence.
    const auto [ordered, positions] = at::sort(inverse, /*stable=*/true, 0, /*descending=*/false);
    at::Tensor first = positions.index_select(0, counts.cumsum(0) - counts);
    if (!sorted) {
      const at::Tensor order = first.argsort();
      values = values.index_select(axis, order);
      first = first.index_select(0, order);
      counts = counts.index_select(0, order);
      inverse = order.argsort().index_select(0, inverse);
    }
    call.out(0, flip_order(values, type), type);
    call.out(1, first);
    call.out(2, inverse);
    call.out(3, counts);
  };
}

OpFacts reading_shapes() {
  OpFacts facts = fixed_shape();
  facts.reads_shapes = true;
  facts.ints_are_values = true;  // Shape's end may be "the last"
  return facts;
}

}  // namespace

void register_generator(OpRegistry& ops) {
  ops.add("Constant", make_constant, fixed_shape().with_any_ints());
  ops.add("ConstantOfShape", make_constant_of_shape, fixed_shape({0}));
  ops.add("EyeLike", make_eye_like, fixed_shape());
  ops.add("Shape", make_shape, reading_shapes());
  ops.add_simple("Range", run_range, fixed_shape({0, 1, 2}));
  ops.add_simple("Size", run_size, reading_shapes());
  ops.add_simple("NonZero", run_non_zero, data_shape());
  ops.add("Unique", make_unique, data_shape());
}

}  // namespace kaon
