#include "api/language_parts.h"

#include <algorithm>

#include "base/text.h"
#include "graph/layer.h"
#include "quant/rules.h"

namespace kaon {

Config for_language_model(Config config, const lm::LanguageModel& model) {
  for (const Model& part : {model.embedding(), model.head()}) {
    for (const Layer& layer : layers(part.graph)) {
      const bool asked =
          std::ranges::any_of(config.by_name, [&](const auto& row) { return glob_match(row.first, layer.name); }) ||
          (layer.op == "Gather" &&
           std::ranges::any_of(config.by_type, [&](const auto& row) { return row.first == layer.op; }));
      if (!asked) config.exclude.push_back(layer.name);
    }
  }
  return config;
}

std::optional<Config> config_of_part(Config config, const Graph& graph) {
  const std::vector<Layer> all = layers(graph);
  const auto matches_none = [&](const std::string& pattern) {
    return std::ranges::none_of(all, [&](const Layer& layer) { return glob_match(pattern, layer.name); });
  };
  std::erase_if(config.exclude, matches_none);
  std::erase_if(config.by_name, [&](const auto& row) { return matches_none(row.first); });
  std::erase_if(config.by_type, [&](const auto& row) {
    return std::ranges::none_of(all, [&](const Layer& layer) { return layer.op == row.first; });
  });
  const Rules rules(config, all, {});
  const bool any = std::ranges::any_of(all, [&](const Layer& layer) {
    const Initializer* table = layer.op == "Gather" ? graph.find_initializer(layer.weight) : nullptr;
    if (table != nullptr && table->tensor.type() != DType::Float32) return false;  // placement leaves it as it is
    const LayerRule rule = rules.of(layer).rule;
    return rule.weight.spec || rule.input.spec || rule.output.spec;
  });
  return any ? std::optional(std::move(config)) : std::nullopt;
}

}  // namespace kaon
