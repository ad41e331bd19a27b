// Matrix products. The compiled plan runs the float32 ones on oneDNN; these serve all types and gradients.
#include "engine/arith.h"

namespace kaon {

namespace {

/// Sets the product of two matrices, or of many, to zeros.
void product_zeros(Call& call, const at::Tensor& a, const at::Tensor& b) {
  // Products with a vector, and what does not fit: ATen knows the rules.
  if (a.dim() < 2 || b.dim() < 2 || a.size(-1) != b.size(-2)) {
    return call.out(0, at::matmul(widen(a), widen(b)), call.type(0));
  }
  std::vector<int64_t> shape = at::infer_size(a.sizes().slice(0, static_cast<size_t>(a.dim()) - 2),
                                              b.sizes().slice(0, static_cast<size_t>(b.dim()) - 2));
  shape.insert(shape.end(), {a.size(-2), b.size(-1)});
  call.out_zeros(0, shape, call.type(0));
}

void matmul(Call& call) {
  if (call.shapes_only()) return product_zeros(call, call.in(0), call.in(1));
  call.out(0, at::matmul(widen(call.in(0)), widen(call.in(1))), call.type(0));
}

/// What is added to a product may be repeated along its rows and columns, but adds none.
void require_fit(const at::Tensor& addend, const at::Tensor& a, const at::Tensor& b) {
  const int64_t sizes[] = {a.size(0), b.size(1)};
  bool fits = addend.dim() <= 2;
  for (int64_t i = 1; fits && i <= addend.dim(); ++i) fits = addend.size(-i) == 1 || addend.size(-i) == sizes[2 - i];
  if (!fits) {
    fail(ErrorCode::InvalidInput, "C", "a shape of {} cannot be added to {} rows of {}",
         to_string(addend.sizes().vec()), sizes[0], sizes[1]);
  }
}

Kernel make_gemm(const OpInfo& info) {
  const float alpha = info.node().get_float("alpha", 1);
  const float beta = info.node().get_float("beta", 1);
  const bool transpose_a = info.node().get_int("transA", 0) != 0;
  const bool transpose_b = info.node().get_int("transB", 0) != 0;
  return [=](Call& call) {
    const at::Tensor a = transpose_a ? call.in(0).t() : call.in(0);
    const at::Tensor b = transpose_b ? call.in(1).t() : call.in(1);
    if (a.dim() == 2 && b.dim() == 2 && call.has(2)) require_fit(call.in(2), a, b);
    if (call.shapes_only()) return product_zeros(call, a, b);
    at::Tensor y = at::mm(widen(a), widen(b));
    if (alpha != 1) y = y * alpha;
    if (call.has(2)) y = y + (beta == 1 ? widen(call.in(2)) : widen(call.in(2)) * beta);
    call.out(0, y, call.type(0));
  };
}

Kernel make_fused_matmul(const OpInfo& info) {
  const float alpha = info.node().get_float("alpha", 1);
  const bool transpose_a = info.node().get_int("transA", 0) != 0;
  const bool transpose_b = info.node().get_int("transB", 0) != 0;
  // A "transBatch" input keeps its batch axis just before the columns: [rows, batch…, columns].
  const bool batch_a = info.node().get_int("transBatchA", 0) != 0;
  const bool batch_b = info.node().get_int("transBatchB", 0) != 0;
  const auto arranged = [](const at::Tensor& tensor, bool transpose, bool batch) {
    at::Tensor out = widen(tensor);
    if (batch) out = out.movedim(0, out.dim() - 2);
    return transpose && out.dim() > 1 ? out.transpose(-1, -2) : out;
  };
  return [=](Call& call) {
    const at::Tensor a = arranged(call.in(0), transpose_a, batch_a);
    const at::Tensor b = arranged(call.in(1), transpose_b, batch_b);
    if (call.shapes_only()) return product_zeros(call, a, b);
    const at::Tensor y = at::matmul(a, b);
    call.out(0, alpha == 1 ? y : y * alpha, call.type(0));
  };
}

void decide_matmul(const NodeView& view, OpFacts& facts) {
  const std::optional<Shape> a = view.shape(0);
  const std::optional<Shape> b = view.shape(1);
  if (a && b && a->size() >= 2 && b->size() == 2) facts.samples = Samples::First;
}

void decide_gemm(const NodeView& view, OpFacts& facts) {
  const std::optional<Shape> c = view.has(2) ? view.shape(2) : Shape{};
  if (view.node.get_int("transA", 0) == 0 && c && (c->size() < 2 || (*c)[0] == 1)) facts.samples = Samples::First;
}

}  // namespace

void register_matmul(OpRegistry& ops) {
  ops.add_simple("MatMul", matmul, fixed_shape().where(decide_matmul));
  ops.add("Gemm", make_gemm, fixed_shape().where(decide_gemm));
  ops.add("FusedMatMul", make_fused_matmul, fixed_shape(), kMicrosoft);
  ops.add(
      "Einsum",
      [](const OpInfo& info) -> Kernel {
        const std::string equation = info.node().get_string("equation", "");
        return [equation](Call& call) {
          std::vector<at::Tensor> operands;
          for (size_t i = 0; i < call.input_count(); ++i) operands.push_back(widen(call.in(i)));
          call.out(0, at::einsum(equation, operands), call.type(0));
        };
      },
      fixed_shape());
}

}  // namespace kaon
