#pragma once
#include <limits>
#include <utility>
#include <vector>

#include "engine/op.h"

namespace kaon {

// What the operator families share.

/// 16-bit floats as float32: ATen lacks some of their CPU kernels, and a result is rounded once, at the end.
inline at::Tensor widen(const at::Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  return type == at::kHalf || type == at::kBFloat16 ? tensor.to(at::kFloat) : tensor;
}

/// The input widened; undefined where it is left out.
inline at::Tensor optional_input(const Call& call, size_t input) {
  return call.has(input) ? widen(call.in(input)) : at::Tensor();
}

/// The kernel of a function of the first input whose result has that input's type and shape.
template <typename Function>
Kernel unary(Function function) {
  return [function](Call& call) {
    if (call.shapes_only()) return call.out_zeros(0, call.in(0).sizes(), call.type(0));
    call.out(0, function(widen(call.in(0))), call.type(0));
  };
}

/// Sets the first output of an operator that broadcasts all its inputs to zeros.
inline void broadcast_zeros(Call& call, DType type) {
  std::vector<int64_t> shape = call.in(0).sizes().vec();
  for (size_t i = 1; i < call.input_count(); ++i) shape = at::infer_size(shape, call.in(i).sizes());
  call.out_zeros(0, shape, type);
}

/// uint64 travels in int64; with the top bit flipped it also sorts as it should. Undone by the same call.
inline at::Tensor flip_order(const at::Tensor& tensor, DType type) {
  return type == DType::UInt64 ? tensor.bitwise_xor(std::numeric_limits<int64_t>::min()) : tensor;
}

/// `axis` counted from the front; throws InvalidInput outside [-rank, rank).
inline int64_t wrap_axis(int64_t axis, int64_t rank) {
  const int64_t wrapped = axis < 0 ? axis + rank : axis;
  if (wrapped < 0 || wrapped >= rank) {
    fail(ErrorCode::InvalidInput, fmt::format("axis {}", axis), "a tensor of rank {} has no such axis", rank);
  }
  return wrapped;
}

/// The two inputs of a binary operator. Before opset 7 the second one was aligned by the attributes `broadcast` and
/// `axis`: its first dimension belongs to `axis` of the first input.
class BinaryInputs {
 public:
  explicit BinaryInputs(const OpInfo& info) {
    if (info.opset() < 7 && info.node().get_int("broadcast", 0) != 0 && info.node().find("axis") != nullptr) {
      aligned_ = true;
      axis_ = info.node().get_int("axis", 0);
    }
  }

  std::pair<at::Tensor, at::Tensor> operator()(const Call& call) const {
    const at::Tensor& a = call.in(0);
    const at::Tensor& b = call.in(1);
    if (!aligned_ || a.dim() == 0) return {a, b};
    std::vector<int64_t> shape = b.sizes().vec();
    const int64_t trailing = a.dim() - wrap_axis(axis_, a.dim()) - b.dim();
    if (trailing > 0) shape.insert(shape.end(), static_cast<size_t>(trailing), 1);
    return {a, b.reshape(shape)};
  }

 private:
  bool aligned_ = false;
  int64_t axis_ = 0;
};

}  // namespace kaon
