#include "debug/non_finite.h"

#include <cmath>

#include "numerics/float_blocks.h"

namespace kaon {

int64_t first_non_finite(std::span<const float> values) {
  for (int64_t from = 0; from < std::ssize(values); from += kBlock) {
    const int64_t count = std::min(kBlock, std::ssize(values) - from);
    if (std::isfinite(block_range(values.data() + from, count).sum)) continue;
    for (int64_t i = from; i < from + count; ++i) {  // a sum of large numbers may overflow, too
      if (!std::isfinite(values[static_cast<size_t>(i)])) return i;
    }
  }
  return -1;
}

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
  if (tensor.type() != DType::Float32) return std::nullopt;
  const std::span<const float> values = tensor.as<float>();
  const int64_t index = first_non_finite(values);
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
  at.value = values[static_cast<size_t>(index)];
  return at;
}

}  // namespace kaon
