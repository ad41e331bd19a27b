#include "api/info.h"

#include <nlohmann/json.hpp>

#include "engine/engine.h"
#include "io/onnx/onnx.h"

namespace kaon {

namespace {

using Json = nlohmann::ordered_json;

/// Counts the ops and constants of `graph` and of those inside it.
void count(const Graph& graph, ModelInfo& info) {
  for (const Initializer& initializer : graph.initializers) info.parameters += initializer.tensor.size();
  for (const Node& node : graph.nodes) {
    ++info.ops[node.domain.empty() ? node.op : node.domain + "." + node.op];
    if (node.op == "Constant" && node.domain.empty()) {
      if (const auto* tensor = node.get_if<Tensor>("value")) info.parameters += tensor->size();
    }
    for (const auto& inner : subgraphs(node)) count(*inner, info);
  }
}

Json shape_json(const ValueInfo& info) {
  if (!info.shape) return nullptr;
  Json dims = Json::array();
  for (const Dim& dim : *info.shape) {
    dims.push_back(dim.value ? Json(*dim.value) : dim.symbol.empty() ? Json(nullptr) : Json(dim.symbol));
  }
  return dims;
}

Json values_json(const std::vector<ValueInfo>& values) {
  Json rows = Json::array();
  for (const ValueInfo& value : values) {
    rows.push_back({{"name", value.name},
                    {"type", value.type == DType::Undefined ? Json(nullptr) : Json(name_of(value.type))},
                    {"shape", shape_json(value)}});
  }
  return rows;
}

Json layers_json(const std::vector<Layer>& layers) {
  Json rows = Json::array();
  for (const Layer& layer : layers) {
    Json slots = Json::array();
    for (const Slot slot : layer.slots()) slots.push_back(name_of(slot));
    rows.push_back({{"name", layer.name},
                    {"tensor", layer.weight},
                    {"op", layer.op},
                    {"weight_shape", layer.weight_shape},
                    {"slots", std::move(slots)}});
  }
  return rows;
}

}  // namespace

ModelInfo inspect_model(const std::filesystem::path& path) {
  ModelInfo info;
  const Model model = read_onnx(path, &info.bytes);
  info.format = "onnx";
  info.opset = model.opset();
  info.inputs = model.graph.required_inputs();
  info.outputs = model.graph.outputs;
  count(model.graph, info);
  info.layers = layers(model.graph);
  info.unsupported = unsupported_nodes(model);
  return info;
}

Json to_json(const ModelInfo& info) {
  return {{"format", info.format},
          {"opset", info.opset},
          {"inputs", values_json(info.inputs)},
          {"outputs", values_json(info.outputs)},
          {"parameters", info.parameters},
          {"bytes", info.bytes},
          {"ops", info.ops},
          {"layers", layers_json(info.layers)},
          {"unsupported", info.unsupported}};
}

}  // namespace kaon
