#include "quant/quantizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "graph/stored.h"

namespace kaon {

std::string Quantizer::label() const {
  return serves.empty() ? tensor : serves.front().layer + "." + std::string(name_of(serves.front().slot));
}

void Quantizer::apply(FloatView in, std::span<float> out, std::span<const int64_t> shape) const {
  if (!calibrated()) fail(ErrorCode::InvalidInput, label(), "this quantizer was not calibrated");
  if (params.scale.empty()) {
    fake_quantize(in, out, shape, spec);
  } else {
    fake_quantize(in, out, shape, spec, params);
  }
}

Tensor Quantizer::applied(const Tensor& exact) const {
  return Tensor::filled<float>(exact.shape(),
                               [&](std::span<float> out) { apply(float_view(exact), out, exact.shape()); });
}

nlohmann::ordered_json to_json(const Skipped& skipped) {
  nlohmann::ordered_json row{{"layer", skipped.layer}, {"reason", skipped.reason}};
  if (skipped.bytes > 0) row["bytes"] = skipped.bytes;
  return row;
}

std::vector<std::string> QuantizedModel::quantized_layers() const {
  std::vector<std::string> names;
  for (const Layer& layer : layers) {
    const bool any = std::any_of(quantizers.begin(), quantizers.end(), [&](const Quantizer& quantizer) {
      return std::any_of(quantizer.serves.begin(), quantizer.serves.end(),
                         [&](const Served& served) { return served.layer == layer.name; });
    });
    if (any) names.push_back(layer.name);
  }
  return names;
}

const Quantizer* QuantizedModel::find(const std::string& layer, Slot slot) const {
  for (const Quantizer& quantizer : quantizers) {
    for (const Served& served : quantizer.serves) {
      if (served.layer == layer && served.slot == slot) return &quantizer;
    }
  }
  return nullptr;
}

void redirect_inside(Graph& graph, const std::vector<Reader>& readers,
                     const std::function<std::string(std::vector<Node>& before)>& to) {
  const std::function<void(Graph&)> visit = [&](Graph& inside) {
    std::vector<Node> nodes;
    std::string value;
    for (Node& node : inside.nodes) {
      edit_subgraphs(node, visit);
      for (const Reader& reader : readers) {
        const auto input = static_cast<size_t>(reader.input);
        if (node_id(node) != reader.node || input >= node.inputs.size()) continue;
        if (value.empty()) value = to(nodes);
        node.inputs[input] = value;
      }
      nodes.push_back(std::move(node));
    }
    inside.nodes = std::move(nodes);
  };
  if (readers.empty()) return;
  for (Node& node : graph.nodes) edit_subgraphs(node, visit);
}

const Tensor& constant_of(const QuantizedModel& quantized, const std::string& name) {
  const auto found = quantized.rounded.find(name);
  return found != quantized.rounded.end() ? found->second : find_stored(quantized.model.graph, name)->tensor;
}

Model rounded_model(const QuantizedModel& quantized) {
  Model model = quantized.model;
  for (const auto& [name, tensor] : quantized.rounded) store(model.graph, name, tensor);
  return model;
}

}  // namespace kaon
