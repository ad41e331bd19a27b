#include "engine/integer_operators.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "engine/op.h"
#include "graph/edit.h"

namespace kaon {

namespace {

class Unfolding {
 public:
  explicit Unfolding(Graph& graph) : graph_(graph), edit_(graph) {}

  void run() {
    for (const Node& node : graph_.nodes) {
      const bool plain = node.domain.empty() || node.domain == kMicrosoft;
      if (!plain || node.outputs.size() != 1 || node.get_int("channels_last", 0) != 0) continue;
      std::optional<std::vector<Node>> parts;
      if (node.op == "QLinearConv") parts = convolution(node);
      if (node.op == "QLinearMatMul") parts = product(node);
      if (node.op == "QGemm" && node.domain == kMicrosoft) parts = gemm(node);
      if (node.op == "QLinearAdd" && node.domain == kMicrosoft) parts = addition(node);
      if (parts) edit_.replace(node_id(node), std::move(*parts));
    }
    edit_.finish();
  }

 private:
  /// Input `i`, where it is constant and nobody can give another.
  const Tensor* constant(const Node& node, size_t i) const {
    if (i >= node.inputs.size()) return nullptr;
    const Initializer* found = graph_.find_initializer(node.inputs[i]);
    const bool given =
        std::ranges::any_of(graph_.inputs, [&](const ValueInfo& one) { return one.name == node.inputs[i]; });
    return found == nullptr || given ? nullptr : &found->tensor;
  }

  /// The scale at input `i` and the zero point behind it, where both are constant and alike in shape.
  bool has_parameters(const Node& node, size_t i) const {
    const Tensor* scale = constant(node, i);
    const Tensor* zero = constant(node, i + 1);
    return scale != nullptr && zero != nullptr && scale->type() == DType::Float32 && scale->rank() <= 1 &&
           scale->size() == zero->size();
  }
  bool has_one_scale(const Node& node, size_t i) const {
    return has_parameters(node, i) && constant(node, i)->size() == 1;
  }

  /// The name of input `i` as a scalar, where it holds one number.
  std::string parameter(const Node& node, size_t i) {
    const Tensor& tensor = *constant(node, i);
    if (tensor.size() != 1 || tensor.rank() == 0) return node.inputs[i];
    return edit_.constant(node.inputs[i], tensor.reshaped({}));
  }

  Node quantizer(const char* op, std::string value, const Node& node, size_t scale, const char* what,
                 int64_t axis = 0) {
    Node made =
        edit_.make(op, {std::move(value), parameter(node, scale), parameter(node, scale + 1)}, node.outputs[0], what);
    if (constant(node, scale)->size() > 1) made.set("axis", axis);
    return made;
  }

  /// x, its scale and zero point, weights, theirs, the scale and zero point of the output, bias.
  std::optional<std::vector<Node>> convolution(const Node& node) {
    if (!has_one_scale(node, 1) || constant(node, 3) == nullptr || !has_parameters(node, 4) ||
        !has_one_scale(node, 6)) {
      return std::nullopt;
    }
    std::optional<Tensor> bias;
    if (has(node, 8)) {
      const Tensor* sums = constant(node, 8);
      if (sums != nullptr && sums->rank() == 1) bias = float_bias(node, *sums, 1);
      if (!bias) return std::nullopt;
    }
    std::vector<Node> parts{quantizer("DequantizeLinear", node.inputs[0], node, 1, "x"),
                            quantizer("DequantizeLinear", node.inputs[3], node, 4, "w")};
    std::vector<std::string> inputs{parts[0].outputs[0], parts[1].outputs[0]};
    if (bias) inputs.push_back(edit_.own_constant(node.outputs[0] + "_bias", *bias));
    Node conv = edit_.make("Conv", std::move(inputs), node.outputs[0], "float");
    conv.attributes = node.attributes;
    std::erase_if(conv.attributes, [](const Attribute& attribute) { return attribute.name == "channels_last"; });
    return ended(std::move(parts), std::move(conv), node, 6);
  }

  static bool has(const Node& node, size_t i) { return i < node.inputs.size() && !node.inputs[i].empty(); }

  /// The bias, which counts in steps of the products: its last axis is that of the weights' scales.
  std::optional<Tensor> float_bias(const Node& node, const Tensor& bias, float alpha) const {
    const std::vector<int64_t> sums = bias.to_int64();
    const std::vector<float> scales = constant(node, 4)->to_float();
    if (scales.size() != 1 && (bias.rank() == 0 || bias.shape().back() != std::ssize(scales))) return std::nullopt;
    const float x_scale = constant(node, 1)->to_float()[0] * alpha;
    std::vector<float> values(sums.size());
    for (size_t i = 0; i < sums.size(); ++i)
      values[i] = static_cast<float>(sums[i]) * (x_scale * scales[i % scales.size()]);
    return Tensor::of(bias.shape(), values);
  }

  /// Whether input 3 is a matrix with one scale, or one for each index of `axis`, at input 4.
  bool has_matrix(const Node& node, size_t axis) const {
    const Tensor* matrix = constant(node, 3);
    if (matrix == nullptr || matrix->rank() != 2 || !has_parameters(node, 4)) return false;
    return constant(node, 4)->size() == 1 || constant(node, 4)->size() == matrix->shape()[axis];
  }

  /// a, its scale and zero point, a matrix, its scales and zero points, the scale and zero point of the output.
  std::optional<std::vector<Node>> product(const Node& node) {
    if (!has_one_scale(node, 1) || !has_matrix(node, 1) || !has_one_scale(node, 6)) return std::nullopt;
    std::vector<Node> parts{quantizer("DequantizeLinear", node.inputs[0], node, 1, "a"),
                            quantizer("DequantizeLinear", node.inputs[3], node, 4, "b", 1)};
    Node made = edit_.make("MatMul", {parts[0].outputs[0], parts[1].outputs[0]}, node.outputs[0], "float");
    return ended(std::move(parts), std::move(made), node, 6);
  }

  /// As product(), with a bias before the output's scale, without which floats are made.
  std::optional<std::vector<Node>> gemm(const Node& node) {
    const bool turned = node.get_int("transB", 0) != 0;
    const bool to_codes = has(node, 7);
    if (!has_one_scale(node, 1) || !has_matrix(node, turned ? 0 : 1) || (to_codes && !has_one_scale(node, 7))) {
      return std::nullopt;
    }
    std::optional<Tensor> bias;
    if (has(node, 6)) {
      const Tensor* sums = constant(node, 6);
      if (sums != nullptr) bias = float_bias(node, *sums, node.get_float("alpha", 1));
      if (!bias) return std::nullopt;
    }
    std::vector<Node> parts{quantizer("DequantizeLinear", node.inputs[0], node, 1, "a"),
                            quantizer("DequantizeLinear", node.inputs[3], node, 4, "b", turned ? 0 : 1)};
    std::vector<std::string> inputs{parts[0].outputs[0], parts[1].outputs[0]};
    if (bias) inputs.push_back(edit_.own_constant(node.outputs[0] + "_bias", *bias));
    Node made = edit_.make("Gemm", std::move(inputs), node.outputs[0], "float");
    made.attributes = node.attributes;
    if (to_codes) return ended(std::move(parts), std::move(made), node, 7);
    made.outputs = node.outputs;
    parts.push_back(std::move(made));
    return parts;
  }

  /// Codes, scale and zero point of both, then those of the output.
  std::optional<std::vector<Node>> addition(const Node& node) {
    if (!has_one_scale(node, 1) || !has_one_scale(node, 4) || !has_one_scale(node, 6)) return std::nullopt;
    std::vector<Node> parts{quantizer("DequantizeLinear", node.inputs[0], node, 1, "a"),
                            quantizer("DequantizeLinear", node.inputs[3], node, 4, "b")};
    Node add = edit_.make("Add", {parts[0].outputs[0], parts[1].outputs[0]}, node.outputs[0], "float");
    return ended(std::move(parts), std::move(add), node, 6);
  }

  std::vector<Node> ended(std::vector<Node> parts, Node between, const Node& node, size_t scale) {
    Node last = quantizer("QuantizeLinear", between.outputs[0], node, scale, "codes");
    last.outputs = node.outputs;
    parts.push_back(std::move(between));
    parts.push_back(std::move(last));
    return parts;
  }

  Graph& graph_;
  GraphEdit edit_;
};

}  // namespace

void unfold_integer_operators(Graph& graph) {
  constexpr std::string_view kOnCodes[] = {"QLinearConv", "QLinearMatMul", "QGemm", "QLinearAdd"};
  const auto on_codes = [&](const Node& node) { return std::ranges::find(kOnCodes, node.op) != std::end(kOnCodes); };
  if (std::ranges::any_of(graph.nodes, on_codes)) Unfolding(graph).run();
}

}  // namespace kaon
