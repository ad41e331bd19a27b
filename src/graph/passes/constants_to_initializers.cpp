#include <optional>
#include <unordered_set>

#include "graph/passes/passes.h"

namespace kaon::passes {

namespace {

/// The tensor of a Constant node; nothing for a sparse one.
std::optional<Tensor> constant_of(const Node& node) {
  for (const Attribute& attribute : node.attributes) {
    if (const auto* tensor = std::get_if<Tensor>(&attribute.value)) return *tensor;
    if (const auto* number = std::get_if<float>(&attribute.value)) return Tensor::scalar(*number);
    if (const auto* number = std::get_if<int64_t>(&attribute.value)) return Tensor::scalar(*number);
    if (const auto* text = std::get_if<std::string>(&attribute.value)) return Tensor::of_strings({}, {*text});
    if (const auto* many = std::get_if<std::vector<float>>(&attribute.value)) {
      return Tensor::of({std::ssize(*many)}, *many);
    }
    if (const auto* many = std::get_if<std::vector<int64_t>>(&attribute.value)) {
      return Tensor::of({std::ssize(*many)}, *many);
    }
    if (const auto* many = std::get_if<std::vector<std::string>>(&attribute.value)) {
      return Tensor::of_strings({std::ssize(*many)}, *many);
    }
  }
  return std::nullopt;
}

int64_t change(Graph& graph) {
  // An initializer as a graph output is legal but not every runtime takes it.
  std::unordered_set<std::string_view> outputs;
  for (const ValueInfo& output : graph.outputs) outputs.insert(output.name);
  return static_cast<int64_t>(std::erase_if(graph.nodes, [&](const Node& node) {
    if (node.op != "Constant" || !node.domain.empty() || node.outputs.size() != 1) return false;
    if (outputs.contains(node.outputs[0])) return false;
    std::optional<Tensor> tensor = constant_of(node);
    if (!tensor || !tensor->defined()) return false;
    graph.initializers.push_back({node.outputs[0], std::move(*tensor), node.doc, {}});
    return true;
  }));
}

}  // namespace

int64_t constants_to_initializers(Model& model, const PassContext&) { return in_every_graph(model.graph, change); }

}  // namespace kaon::passes
