#include "engine/scales_with.h"

#include <algorithm>
#include <map>

#include "engine/op_facts.h"

namespace kaon {
namespace {

using Sets = std::vector<std::vector<size_t>>;

constexpr const char* kMicrosoft = "com.microsoft";

/// Of each operator, by domain and name.
const std::map<std::pair<std::string, std::string>, Sets>& table() {
  static const std::map<std::pair<std::string, std::string>, Sets> all = {
      {{"", "Mul"}, {{0}, {1}}},
      {{"", "Div"}, {{0}}},
      {{"", "MatMul"}, {{0}, {1}}},
      {{kMicrosoft, "FusedMatMul"}, {{0}, {1}}},
      // Gain, and what is added behind it.
      {{"", "LayerNormalization"}, {{1, 2}}},
      {{kMicrosoft, "LayerNormalization"}, {{1, 2}}},
      {{"", "RMSNormalization"}, {{1}}},
      {{"", "SimplifiedLayerNormalization"}, {{1}}},
      {{kMicrosoft, "SimplifiedLayerNormalization"}, {{1}}},
      {{kMicrosoft, "SkipLayerNormalization"}, {{2, 3}}},
      {{kMicrosoft, "SkipSimplifiedLayerNormalization"}, {{2}}},
      // Values, new and past.
      {{"", "Attention"}, {{2, 5}}},
  };
  return all;
}

}  // namespace

Sets scales_with(const Node& node) {
  const auto found = table().find({node.domain, node.op});
  if (found == table().end()) return {};
  Sets sets = found->second;
  for (std::vector<size_t>& set : sets) {
    std::erase_if(set, [&](size_t input) { return input >= node.inputs.size() || node.inputs[input].empty(); });
  }
  return sets;
}

bool scales_alone(const Node& node, const Graph& graph, size_t input) {
  const OpFacts facts = facts_of(node, graph);
  if (facts.homogeneous != Homogeneous::No && input == 0 && (!facts.all_data || node.inputs.size() == 1)) return true;
  const Sets sets = scales_with(node);
  return std::ranges::find(sets, std::vector<size_t>{input}) != sets.end();
}

}  // namespace kaon
