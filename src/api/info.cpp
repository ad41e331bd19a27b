#include "api/info.h"

#include <nlohmann/json.hpp>

#include "api/load_model.h"
#include "engine/engine.h"

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

LanguageModelInfo describe(const lm::LanguageModel& model) {
  constexpr int64_t kWindow = 512;
  LanguageModelInfo info;
  info.family = model.family_name();
  info.facts = model.facts();
  info.parameters = model.parameters();
  info.window = std::min(kWindow, info.facts.positions);
  const lm::Facts& f = info.facts;
  const int64_t scores = f.heads * info.window * info.window;
  const int64_t rows = info.window * (4 * f.width + 3 * f.inner_width + f.vocabulary);
  info.memory_bytes = (info.parameters + 2 * scores + rows) * static_cast<int64_t>(sizeof(float));
  return info;
}

Json language_model_json(const LanguageModelInfo& info) {
  const lm::Facts& f = info.facts;
  return {{"family", info.family},
          {"layers", f.layers},
          {"width", f.width},
          {"heads", f.heads},
          {"kv_heads", f.kv_heads},
          {"head_width", f.head_width},
          {"inner_width", f.inner_width},
          {"vocabulary", f.vocabulary},
          {"positions", f.positions},
          {"tied", f.tied},
          {"window", info.window},
          {"memory_bytes", info.memory_bytes}};
}

}  // namespace

ModelInfo inspect_model(const std::filesystem::path& path) {
  ModelInfo info;
  Model model;
  info.format = "onnx";
  if (is_language_model(path)) {
    const lm::LanguageModel language = lm::LanguageModel::open(path);
    info.format = path.extension() == ".gguf" ? "gguf" : "huggingface";
    info.language_model = describe(language);
    info.bytes = language.bytes();
    model = language.whole();
  } else {
    model = load_model(path, &info.bytes);
  }
  info.opset = model.opset();
  info.inputs = model.graph.required_inputs();
  info.outputs = model.graph.outputs;
  count(model.graph, info);
  // A tied head's table counts once, and constants of ours not at all.
  if (info.language_model) info.parameters = info.language_model->parameters;
  info.layers = layers(model.graph);
  info.unsupported = unsupported_nodes(model);
  return info;
}

Json to_json(const ModelInfo& info) {
  Json json{{"format", info.format},
            {"opset", info.opset},
            {"inputs", values_json(info.inputs)},
            {"outputs", values_json(info.outputs)},
            {"parameters", info.parameters},
            {"bytes", info.bytes},
            {"ops", info.ops},
            {"layers", layers_json(info.layers)},
            {"unsupported", info.unsupported}};
  if (info.language_model) json["language_model"] = language_model_json(*info.language_model);
  return json;
}

}  // namespace kaon
