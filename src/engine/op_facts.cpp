#include "engine/op_facts.h"

#include <algorithm>

#include "engine/op.h"

namespace kaon {

namespace {

std::optional<Shape> known_shape(const Graph& graph, const std::string& value) {
  if (const Initializer* initializer = graph.find_initializer(value)) return initializer->tensor.shape();
  for (const std::vector<ValueInfo>* infos : {&graph.inputs, &graph.values, &graph.outputs}) {
    const auto info =
        std::find_if(infos->begin(), infos->end(), [&](const ValueInfo& one) { return one.name == value; });
    if (info == infos->end() || !info->shape) continue;
    Shape shape;
    for (const Dim& dim : *info->shape) shape.push_back(dim.value.value_or(-1));
    return shape;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::vector<int64_t>> NodeView::ints(const char* attribute, size_t input) const {
  if (!has(input)) {
    return node.find(attribute) != nullptr ? std::optional(node.get_ints(attribute)) : std::nullopt;
  }
  const std::optional<Tensor> known = constant(input);
  return known ? std::optional(known->to_int64()) : std::nullopt;
}

std::optional<int64_t> NodeView::axis(int64_t given) const {
  const std::optional<Shape> known = shape(0);
  if (!known) return given >= 0 ? std::optional(given) : std::nullopt;
  const int64_t wrapped = given < 0 ? given + std::ssize(*known) : given;
  return wrapped >= 0 && wrapped < std::ssize(*known) ? std::optional(wrapped) : std::nullopt;
}

std::optional<std::vector<int64_t>> NodeView::axes(const char* attribute, size_t input) const {
  std::optional<std::vector<int64_t>> found = ints(attribute, input);
  if (!found) return std::nullopt;
  for (int64_t& one : *found) {
    const std::optional<int64_t> wrapped = axis(one);
    if (!wrapped) return std::nullopt;
    one = *wrapped;
  }
  return found;
}

OpFacts broadcasting() {
  return fixed_shape().with(Samples::Broadcast).with_all_data().where([](const NodeView& view, OpFacts& facts) {
    if (view.node.find("axis") != nullptr) facts.samples = Samples::Mixed;  // aligned as before opset 7
  });
}

OpFacts facts_of(const NodeView& view) {
  const OpFacts* known = operators().facts(view.node.domain, view.node.op);
  if (known == nullptr) return {};
  OpFacts facts = *known;
  if (facts.refine) facts.refine(view, facts);
  return facts;
}

OpFacts facts_of(const Node& node, const Graph& graph) {
  const auto constant = [&](size_t input) -> std::optional<Tensor> {
    const Initializer* found = graph.find_initializer(node.inputs[input]);
    return found == nullptr ? std::nullopt : std::optional(found->tensor);
  };
  const auto shape = [&](size_t input) {
    return input < node.inputs.size() ? known_shape(graph, node.inputs[input]) : std::nullopt;
  };
  return facts_of(NodeView{node, constant, shape});
}

std::vector<std::string> data_inputs(const Node& node, const OpFacts& facts) {
  if (facts.all_data || node.inputs.empty()) return node.inputs;
  return {node.inputs[0]};
}

std::vector<std::pair<std::string, std::string>> operator_names() { return operators().names(); }

}  // namespace kaon
