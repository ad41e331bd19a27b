// Convolutions and matrix products of codes. The integer sums are exact: float64 holds them.
#include "engine/affine.h"
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
  return wrapped_sum(sum).to(at::kFloat) * one_number(scale);
}

/// sum * scale as codes of the type of the zero point at `zero`.
Value requantize(const Call& call, const at::Tensor& sum, const at::Tensor& scale, size_t zero, DType otherwise) {
  const DType type = call.has(zero) ? call.type(zero) : otherwise;
  return to_codes(rescale(sum, scale), one_number(zero_point(call, zero)), type);
}

at::Tensor product(const Call& call, size_t a, size_t a_zero, size_t b, size_t b_zero) {
  return at::matmul(centred(call.value(a), one_number(by_row(zero_point(call, a_zero)))),
                    centred(call.value(b), one_number(zero_point(call, b_zero))));
}

void matmul_integer(Call& call) { call.out(0, wrapped_sum(product(call, 0, 2, 1, 3))); }

void qlinear_matmul(Call& call) {
  const at::Tensor scale = one_number(by_row(scale_of(call, 1))) * one_number(scale_of(call, 4)) / scale_of(call, 6);
  const at::Tensor sum = product(call, 0, 2, 3, 5);
  call.out(0, requantize(call, sum, scale, 7, call.type(0)));
}

void matmul_integer_to_float(Call& call) {
  const at::Tensor scale = one_number(by_row(scale_of(call, 2))) * one_number(scale_of(call, 3));
  at::Tensor y = rescale(product(call, 0, 4, 1, 5), scale);
  if (call.has(6)) y = y + to_float(call.value(6));
  call.out(0, y, call.type(2));
}

void dynamic_quantize_matmul(Call& call) {
  const DynamicCodes a = quantize_dynamic(call.in(0));
  const at::Tensor b = centred(call.value(1), one_number(zero_point(call, 3)));
  at::Tensor y = rescale(at::matmul(centred(a.codes, a.zero), b), a.scale * one_number(scale_of(call, 2)));
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
    const at::Tensor a = centred(operand(0, transpose_a), one_number(zero_point(call, 2)));
    const at::Tensor b = centred(operand(3, transpose_b), one_number(zero_point(call, 5)));
    at::Tensor sum = at::mm(a, b);
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
    const at::Tensor bias = call.has(8) ? call.in(8).to(at::kDouble) : at::Tensor();
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
    return convolve(centred(codes, one_number(zero_point(call, x_zero))), centred(weight, zero), bias, window_,
                    groups_);
  }

  WindowAttributes window_;
  int64_t groups_;
  bool channels_last_;
};

Kernel make_conv_integer(const OpInfo& info) {
  return [conv = QuantizedConv(info)](Call& call) { conv.integer(call); };
}

Kernel make_qlinear_conv(const OpInfo& info) {
  return [conv = QuantizedConv(info)](Call& call) { conv.quantized(call); };
}

}  // namespace

void register_qproduct(OpRegistry& ops) {
  ops.add_simple("MatMulInteger", matmul_integer, fixed_shape());
  ops.add_simple("QLinearMatMul", qlinear_matmul, fixed_shape());
  ops.add("ConvInteger", make_conv_integer, fixed_shape());
  ops.add("QLinearConv", make_qlinear_conv, fixed_shape());
  ops.add("QLinearConv", make_qlinear_conv, fixed_shape(), kMicrosoft);
  ops.add("QGemm", make_qgemm, fixed_shape(), kMicrosoft);
  ops.add_simple("MatMulIntegerToFloat", matmul_integer_to_float, fixed_shape(), kMicrosoft);
  ops.add_simple("DynamicQuantizeMatMul", dynamic_quantize_matmul, fixed_shape(), kMicrosoft);
}

}  // namespace kaon
