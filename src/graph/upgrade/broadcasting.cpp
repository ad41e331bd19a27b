#include "graph/upgrade/rules.h"

namespace kaon::upgrade {

namespace {

/// Gives input `at` as many trailing axes of length one.
std::vector<Node> with_trailing_axes(Node node, size_t at, int64_t rank, int64_t trailing, Editor& editor) {
  if (const Tensor* tensor = editor.find_constant(node.inputs[at])) {
    Shape shape = tensor->shape();
    shape.insert(shape.end(), static_cast<size_t>(trailing), 1);
    node.inputs[at] = editor.constant(node, "operand", tensor->reshaped(std::move(shape)));
    return {node};
  }
  std::vector<int64_t> axes;
  for (int64_t i = 0; i < trailing; ++i) axes.push_back(rank + i);
  Node unsqueeze = editor.helper(node, "operand", "Unsqueeze", {node.inputs[at]});
  unsqueeze.set("axes", axes);
  node.inputs[at] = unsqueeze.outputs[0];
  return {unsqueeze, node};
}

/// Before version 7 the second operand lay along the first one's axes from `axis` on, or along its last ones.
std::vector<Node> binary(Node node, Editor& editor) {
  const bool broadcasts = node.get_int("broadcast", 0) != 0;
  const bool has_axis = node.find("axis") != nullptr;
  int64_t axis = node.get_int("axis", 0);
  node.erase("broadcast");
  node.erase("axis");
  if (!broadcasts || !has_axis || node.inputs.size() != 2) return {node};
  const std::optional<int64_t> rank = editor.rank_of(node.inputs[0]), other = editor.rank_of(node.inputs[1]);
  if (other && *other == 0) return {node};
  if (!rank || !other) unsupported(node, "it broadcasts along an axis and its operands' ranks are not known");
  if (axis < 0) axis += *rank;
  const int64_t trailing = *rank - axis - *other;
  return trailing <= 0 ? std::vector<Node>{node} : with_trailing_axes(node, 1, *other, trailing, editor);
}

/// Before version 7 a slope of several elements lay along axis 1.
std::vector<Node> prelu(Node node, Editor& editor) {
  if (node.inputs.size() != 2) return {node};
  const Tensor* slope = editor.find_constant(node.inputs[1]);
  if (slope != nullptr && slope->size() == 1) return {node};
  const std::optional<int64_t> rank = editor.rank_of(node.inputs[0]), slope_rank = editor.rank_of(node.inputs[1]);
  if (!rank || !slope_rank) unsupported(node, "its operands' ranks are not known");
  if (*slope_rank != 1 || *rank <= 2) return {node};
  return with_trailing_axes(node, 1, 1, *rank - 2, editor);
}

std::vector<Node> gemm(Node node, Editor&) {
  node.erase("broadcast");
  return {node};
}

}  // namespace

std::vector<Change> broadcasting_changes() {
  std::vector<Change> changes{{"PRelu", 7, prelu}, {"Gemm", 7, gemm}};
  for (const std::string_view op :
       {"Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor"}) {
    changes.push_back({op, 7, binary});
  }
  return changes;
}

}  // namespace kaon::upgrade
