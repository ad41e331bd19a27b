#include "api/folder_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "api/language_parts.h"
#include "base/error.h"
#include "graph/node_id.h"
#include "io/quantized/quark.h"
#include "io/quantized/transposed.h"
#include "quant/placement.h"

namespace kaon {

namespace ct = compressed_tensors;

namespace {

constexpr const char* kQuark = "quark";

/// The graph with weights that have a type and a shape and no numbers: what 16-bit weights are behind their Cast.
Model without_values(Model model) {
  std::vector<Node> nodes;
  for (Node& node : model.graph.nodes) {
    const Initializer* stored = node.op == "Cast" ? model.graph.find_initializer(node.inputs.front()) : nullptr;
    if (stored == nullptr) {
      nodes.push_back(std::move(node));
      continue;
    }
    model.graph.initializers.push_back(
        {node.outputs.front(), Tensor(DType::Float32, stored->tensor.shape(), nullptr, nullptr), {}, {}});
  }
  model.graph.nodes = std::move(nodes);
  return model;
}

template <typename Edit>
void for_each_rule(Config& config, const Edit& edit) {
  edit(config.global);
  for (auto& [type, rule] : config.by_type) edit(rule);
  for (auto& [name, rule] : config.by_name) edit(rule);
}

/// Takes out what the layout has no place for and says so. `half_scales`: it stores scales as float16.
Config storable(Config config, bool half_scales, std::vector<std::string>& notes) {
  bool outputs = false, global_inputs = false;
  for_each_rule(config, [&](LayerRule& rule) {
    outputs |= rule.output.spec || rule.bias.spec;
    rule.output = rule.bias = {};
    if (rule.input.spec && format(rule.input.spec->format).global_scale) {
      global_inputs = true;
      rule.input = {};
    }
    // Readers compute the scales of dynamic inputs themselves, in float32.
    if (rule.input.spec && rule.input.spec->dynamic) rule.input.spec->scale_type = ScaleType::Float32;
    if (half_scales && rule.weight.spec) rule.weight.spec->scale_type = ScaleType::Float16;
  });
  if (outputs) notes.emplace_back("outputs and biases stay float: the layout quantizes weights and inputs");
  if (global_inputs) notes.emplace_back("inputs stay float: nvfp4 would need a global scale for them beforehand");
  return config;
}

/// The module of `layer` under the name that the checkpoint has for it.
std::optional<std::string> stored_module(const std::string& layer, const std::string& prefix,
                                         const Checkpoint& checkpoint) {
  if (checkpoint.contains(layer + ".weight")) return layer;
  if (!layer.starts_with(prefix)) return std::nullopt;
  std::string bare = layer.substr(prefix.size());
  return checkpoint.contains(bare + ".weight") ? std::optional(std::move(bare)) : std::nullopt;
}

DType float_type(ScaleType type) {
  if (type == ScaleType::Float16) return DType::Float16;
  return type == ScaleType::BFloat16 ? DType::BFloat16 : DType::Float32;
}

std::optional<transposed::Method> transposed_method(const std::string& name) {
  if (name == "awq") return transposed::Method::Awq;
  if (name == "gptq") return transposed::Method::Gptq;
  return std::nullopt;
}

/// These configs say one thing about all layers.
void expect_alike(const FolderPlan& plan, const std::vector<std::string>& usually_left, const std::string& where) {
  for (const FolderLayer& layer : plan.layers) {
    if (layer.weight == plan.layers.front().weight) continue;
    fail(ErrorCode::Unsupported, where + ": " + layer.name, "{} quantizes all layers alike; use compressed-tensors",
         plan.method);
  }
  if (plan.method != "gptq") return;
  for (const std::string& name : plan.left) {
    if (std::ranges::find(usually_left, name) != usually_left.end()) continue;
    fail(ErrorCode::Unsupported, fmt::format("{}: {}", where, name),
         "gptq has no way to leave a layer of a block as it is; use awq or compressed-tensors");
  }
}

bool is_linear(const Graph& graph, const Layer& layer) {
  return layer.op == "Gemm" && layer.weight_input == 1 && node_by_id(graph, layer.node).get_int("transB", 0) == 1;
}

}  // namespace

std::vector<std::string> folder_methods() { return {"compressed-tensors", "awq", "gptq", "quark"}; }

std::vector<ct::Part> parts_of(const FolderLayer& layer) {
  const int64_t rows = layer.shape[0], cols = layer.shape[1];
  if (const auto method = transposed_method(layer.layout))
    return transposed::parts_of(*method, layer.weight, rows, cols);
  const DType scale_type = float_type(layer.weight.scale_type);
  if (layer.layout == kQuark) return quark::parts_of(layer.weight, rows, cols, scale_type);
  return ct::parts_of(layer.weight, layer.layout, rows, cols, scale_type);
}

std::vector<std::vector<std::byte>> encode(const FolderLayer& layer, const CodedMatrix& matrix) {
  if (const auto method = transposed_method(layer.layout)) return transposed::encode(*method, matrix);
  if (layer.layout == kQuark) return quark::encode(matrix, float_type(layer.weight.scale_type));
  return ct::encode(matrix, layer.layout, float_type(layer.weight.scale_type));
}

bool goes_by_rows(const FolderLayer& layer) {
  return layer.layout == kQuark ? quark::by_rows(layer.weight) : !transposed_method(layer.layout);
}

FolderPlan plan_folder(const lm::LanguageModel& model, const Checkpoint& checkpoint, const Config& config,
                       const std::string& method, const std::string& where) {
  FolderPlan plan;
  plan.method = method;
  const auto other = transposed_method(method);
  const Config meant = for_language_model(config, model);
  plan.config = storable(meant, other.has_value(), plan.notes);
  const QuantizedModel placed = place_quantizers(without_values(model.whole()), plan.config);
  plan.skipped = placed.skipped;
  const std::string prefix = lm::families().get(model.family_name()).prefix;
  for (const Layer& layer : placed.layers) {
    const Quantizer* weight = placed.find(layer.name, Slot::Weight);
    const bool linear = is_linear(placed.model.graph, layer);
    if (weight == nullptr) {
      if (linear) plan.left.push_back(layer.name);
      continue;
    }
    if (!linear) {
      fail(ErrorCode::Unsupported, where + ": " + layer.name,
           "a {} is no Linear module there, so that {} cannot hold it; use --format gguf or onnx",
           layer.op == "Gemm" ? "matrix stored [in, out] (Conv1D)" : layer.op, method);
    }
    const std::optional<std::string> module = stored_module(layer.name, prefix, checkpoint);
    if (!module) fail(ErrorCode::Unsupported, where + ": " + layer.name, "has no weight of its own in the files");
    FolderLayer row;
    row.name = layer.name;
    row.module = *module;
    row.shape = layer.weight_shape;
    row.weight = weight->spec;
    if (const Quantizer* input = placed.find(layer.name, Slot::Input)) {
      row.input = input->spec;
      row.dynamic = input->dynamic || has_own_scales(input->spec);
    }
    const std::string here = where + ": " + layer.name;
    if (other) {
      if (row.input) fail(ErrorCode::Unsupported, here, "{} quantizes weights alone", method);
      transposed::check(*other, row.weight, row.shape[0], row.shape[1], here);
      row.layout = method;
    } else if (method == kQuark) {
      quark::check(row.weight, row.shape[0], row.shape[1], here);
      row.layout = method;
    } else {
      row.layout = ct::format_for(row.weight, row.input.has_value(), here);
    }
    plan.layers.push_back(std::move(row));
  }
  if (other) {
    std::vector<std::string> usually_left;
    for (const Layer& layer : layers(model.head().graph)) usually_left.push_back(layer.name);
    expect_alike(plan, usually_left, where);
  }
  return plan;
}

namespace {

/// What the first layer is stands for all; those that are not like it follow by name.
nlohmann::ordered_json quark_config(const FolderPlan& plan) {
  using Json = nlohmann::ordered_json;
  const auto rule = [](const FolderLayer& layer) {
    return Json{{"weight", quark::to_json(layer.weight, false)},
                {"input_tensors", layer.input ? quark::to_json(*layer.input, layer.dynamic) : Json(nullptr)},
                {"output_tensors", nullptr},
                {"bias", nullptr}};
  };
  Json config{{"quant_method", kQuark},
              {"quant_mode", "eager_mode"},
              {"global_quant_config", rule(plan.layers.front())},
              {"layer_type_quant_config", Json::object()},
              {"layer_quant_config", Json::object()},
              {"exclude", plan.left},
              {"algo_config", nullptr}};
  for (const FolderLayer& layer : plan.layers) {
    const Json own = rule(layer);
    if (own != config["global_quant_config"]) config["layer_quant_config"][layer.name] = own;
  }
  config["export"] = {{"kv_cache_group", Json::array()},
                      {"min_kv_scale", 0.0},
                      {"pack_method", "reorder"},
                      {"weight_format", "real_quantized"},
                      {"weight_merge_groups", nullptr}};
  return config;
}

}  // namespace

nlohmann::ordered_json quantization_config(const FolderPlan& plan) {
  using Json = nlohmann::ordered_json;
  if (plan.method == kQuark) return quark_config(plan);
  if (plan.method != "compressed-tensors") {
    const TensorSpec& spec = plan.layers.front().weight;
    Json config{{"quant_method", plan.method},
                {"bits", format(spec.format).bits},
                {"group_size", spec.granularity == Granularity::PerGroup ? spec.group_size : -1}};
    if (plan.method == "awq") {
      config["zero_point"] = true;
      config["version"] = "gemm";
      config["modules_to_not_convert"] = plan.left;
    } else {
      config["desc_act"] = false;
      config["sym"] = spec.symmetric;
      config["lm_head"] = false;
      config["checkpoint_format"] = "gptq";
    }
    return config;
  }
  struct Group {
    Json json;
    std::string layout;
    std::vector<std::string> modules;
  };
  std::vector<Group> groups;
  for (const FolderLayer& layer : plan.layers) {
    const Json json{{"targets", Json::array()},
                    {"weights", ct::to_args(layer.weight, false)},
                    {"input_activations", layer.input ? ct::to_args(*layer.input, layer.dynamic) : Json(nullptr)},
                    {"output_activations", nullptr},
                    {"format", layer.layout}};
    auto found = std::ranges::find(groups, json, &Group::json);
    if (found == groups.end()) found = groups.insert(groups.end(), {json, layer.layout, {}});
    found->modules.push_back(layer.name);
  }
  Json config{{"quant_method", "compressed-tensors"}};
  const bool one_layout = std::ranges::all_of(groups, [&](const Group& g) { return g.layout == groups[0].layout; });
  config["format"] = one_layout ? groups.front().layout : "mixed-precision";
  config["quantization_status"] = "compressed";
  config["global_compression_ratio"] = nullptr;
  config["kv_cache_scheme"] = nullptr;
  config["ignore"] = plan.left;
  for (size_t i = 0; i < groups.size(); ++i) {
    groups[i].json["targets"] = groups.size() == 1 ? Json::array({"Linear"}) : Json(groups[i].modules);
    config["config_groups"][fmt::format("group_{}", i)] = std::move(groups[i].json);
  }
  return config;
}

}  // namespace kaon
