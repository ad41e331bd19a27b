// The operators on codes that ONNX Runtime's quantizer writes beside convolutions and products.
#include "engine/affine.h"
#include "engine/arith.h"

namespace kaon {

namespace {

/// Inputs `first`, first + 1 and first + 2: codes, scale and zero point.
at::Tensor dequantized(const Call& call, size_t first) {
  return centred(call.value(first), zero_point(call, first + 2)).to(at::kFloat) * to_float(call.value(first + 1));
}

/// `x` as codes by the scale and zero point at inputs `scale` and scale + 1.
Value quantized(const Call& call, const at::Tensor& x, size_t scale, DType otherwise) {
  const DType type = call.has(scale + 1) ? call.type(scale + 1) : otherwise;
  return to_codes(x / to_float(call.value(scale)), zero_point(call, scale + 1), type);
}

at::Tensor channels_first(const at::Tensor& x, bool last) { return last ? x.movedim(-1, 1) : x; }
at::Tensor channels_back(const at::Tensor& x, bool last) { return last ? x.movedim(1, -1) : x; }

/// Inputs: x, its scale and zero point, the output's scale and zero point. The float operator of ONNX runs between.
KernelMaker between_codes(const std::string& op) {
  return [op](const OpInfo& info) -> Kernel {
    const bool channels_last = info.node().get_int("channels_last", 0) != 0;
    return [kernel = (*operators().find("", op))(info), channels_last](Call& call) {
      const Value x{channels_first(dequantized(call, 0), channels_last), DType::Float32};
      const Value* inputs[] = {&x};
      Value y[1];
      Call inner(inputs, y);
      kernel(inner);
      call.out(0, quantized(call, channels_back(y[0].tensor, channels_last), 3, call.type(0)));
    };
  };
}

void qlinear_add(Call& call) {
  call.out(0, quantized(call, dequantized(call, 0) + dequantized(call, 3), 6, call.type(0)));
}

void qlinear_mul(Call& call) {
  const at::Tensor product = centred(call.value(0), zero_point(call, 2)) * centred(call.value(3), zero_point(call, 5));
  const at::Tensor scale = to_float(call.value(1)) * to_float(call.value(4)) / to_float(call.value(6));
  const DType type = call.has(7) ? call.type(7) : call.type(0);
  call.out(0, to_codes(product.to(at::kFloat) * scale, zero_point(call, 7), type));
}

Kernel make_global_average_pool(const OpInfo& info) {
  const bool channels_last = info.node().get_int("channels_last", 0) != 0;
  return [channels_last](Call& call) {
    const at::Tensor x = channels_first(centred(call.value(0), zero_point(call, 2)), channels_last);
    if (x.dim() < 3) fail(ErrorCode::InvalidInput, "input 0", "its rank is {}, at least 3 is needed", x.dim());
    std::vector<int64_t> axes;
    int64_t count = 1;
    for (int64_t i = 2; i < x.dim(); ++i) {
      axes.push_back(i);
      count *= x.size(i);
    }
    const at::Tensor sum = x.sum(axes, /*keepdim=*/true).to(at::kFloat);
    const at::Tensor scale = to_float(call.value(1)) / (to_float(call.value(3)) * static_cast<double>(count));
    const DType type = call.has(4) ? call.type(4) : call.type(0);
    call.out(0, to_codes(channels_back(sum * scale, channels_last), zero_point(call, 4), type));
  };
}

/// Inputs: the output's scale and zero point, then codes, scale and zero point of each part.
Kernel make_concat(const OpInfo& info) {
  const int64_t axis = info.node().get_int("axis", 0);
  return [axis](Call& call) {
    std::vector<at::Tensor> parts;
    for (size_t i = 2; i + 1 < call.input_count(); i += 3) parts.push_back(dequantized(call, i));
    if (parts.empty()) fail(ErrorCode::InvalidInput, "inputs", "there is nothing to concatenate");
    call.out(0, quantized(call, at::cat(parts, wrap_axis(axis, parts[0].dim())), 0, call.type(2)));
  };
}

/// The attribute "opset" says which Softmax is meant: before 13 the axes from `axis` on were one.
Kernel make_softmax(const OpInfo& info) {
  const int64_t axis = info.node().get_int("axis", -1);
  const bool as_matrix = info.node().get_int("opset", 13) < 13;
  return [axis, as_matrix](Call& call) {
    const at::Tensor x = dequantized(call, 0);
    const int64_t at = wrap_axis(axis, x.dim());
    const at::Tensor y = as_matrix ? at::softmax(x.flatten(at), at).reshape(x.sizes()) : at::softmax(x, at);
    call.out(0, quantized(call, y, 3, call.type(0)));
  };
}

}  // namespace

void register_qlinear(OpRegistry& ops) {
  ops.add_simple("QLinearAdd", qlinear_add, fixed_shape(), kMicrosoft);
  ops.add_simple("QLinearMul", qlinear_mul, fixed_shape(), kMicrosoft);
  ops.add("QLinearSigmoid", between_codes("Sigmoid"), fixed_shape(), kMicrosoft);
  ops.add("QLinearLeakyRelu", between_codes("LeakyRelu"), fixed_shape(), kMicrosoft);
  ops.add("QLinearAveragePool", between_codes("AveragePool"), fixed_shape(), kMicrosoft);
  ops.add("QLinearGlobalAveragePool", make_global_average_pool, fixed_shape(), kMicrosoft);
  ops.add("QLinearConcat", make_concat, fixed_shape(), kMicrosoft);
  ops.add("QLinearSoftmax", make_softmax, fixed_shape(), kMicrosoft);
}

}  // namespace kaon
