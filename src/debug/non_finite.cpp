#include "debug/non_finite.h"

#include "graph/finite.h"
#include "graph/stored.h"

namespace kaon {

ValueNames::ValueNames(const QuantizedModel& quantized) {
  const Graph& graph = quantized.model.graph;
  for (const Node& node : graph.nodes) {
    for (const std::string& output : node.outputs) served_[output] = {plain_name(node), Slot::Output};
  }
  for (const Layer& layer : quantized.layers) {
    if (!layer.output.empty()) {
      for (const std::string& output : node_by_id(graph, layer.node).outputs) {
        served_[output] = {layer.name, Slot::Output};
      }
      served_[layer.output] = {layer.name, Slot::Output};
    }
    if (!layer.weight.empty()) served_[layer.weight] = {layer.name, Slot::Weight};
    if (!layer.bias.empty()) served_[layer.bias] = {layer.name, Slot::Bias};
    if (!layer.input.empty()) served_.insert({layer.input, {layer.name, Slot::Input}});
  }
}

std::optional<NonFiniteAt> ValueNames::find(const std::string& name, const Tensor& tensor) const {
  if (!is_float(tensor)) return std::nullopt;
  const int64_t index = first_non_finite(tensor);
  if (index < 0) return std::nullopt;
  NonFiniteAt at;
  const auto served = served_.find(name);
  at.layer = served == served_.end() ? name : served->second.layer;
  at.slot = served == served_.end() ? Slot::Output : served->second.slot;
  at.tensor = name;
  at.index = index;
  at.element.resize(tensor.shape().size());
  int64_t rest = index;
  for (size_t axis = tensor.shape().size(); axis-- > 0;) {
    at.element[axis] = rest % tensor.shape()[axis];
    rest /= tensor.shape()[axis];
  }
  at.value = float_view(tensor).at(index);
  return at;
}

}  // namespace kaon
