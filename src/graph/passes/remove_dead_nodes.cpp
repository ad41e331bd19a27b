#include <algorithm>
#include <unordered_set>

#include "graph/passes/passes.h"

namespace kaon::passes {

namespace {

using Names = std::unordered_set<std::string>;

/// Removes what nothing needs from `graph` and the graphs inside it.
int64_t change(Graph& graph) {
  int64_t changes = 0;
  Names needed;
  for (const ValueInfo& output : graph.outputs) needed.insert(output.name);
  std::vector<Node> kept;
  kept.reserve(graph.nodes.size());
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    const auto is_needed = [&](const std::string& output) { return !output.empty() && needed.contains(output); };
    if (std::none_of(node->outputs.begin(), node->outputs.end(), is_needed)) {
      ++changes;
      continue;
    }
    // The subgraphs first: what dies in them is no longer captured.
    edit_subgraphs(*node, [&](Graph& subgraph) { changes += change(subgraph); });
    needed.insert(node->inputs.begin(), node->inputs.end());
    for (const auto& subgraph : subgraphs(*node)) {
      for (const std::string& value : captured_values(*subgraph)) needed.insert(value);
    }
    kept.push_back(std::move(*node));
  }
  std::reverse(kept.begin(), kept.end());
  graph.nodes = std::move(kept);

  Names dropped;
  changes += static_cast<int64_t>(std::erase_if(graph.initializers, [&](const Initializer& initializer) {
    if (needed.contains(initializer.name)) return false;
    dropped.insert(initializer.name);
    return true;
  }));
  // An initializer may stand among the inputs as their default; alone the input would become a required one.
  std::erase_if(graph.inputs, [&](const ValueInfo& input) { return dropped.contains(input.name); });

  Names exists;
  for (const ValueInfo& input : graph.inputs) exists.insert(input.name);
  for (const Initializer& initializer : graph.initializers) exists.insert(initializer.name);
  for (const Node& node : graph.nodes) exists.insert(node.outputs.begin(), node.outputs.end());
  std::erase_if(graph.values, [&](const ValueInfo& info) { return !exists.contains(info.name); });
  return changes;
}

}  // namespace

int64_t remove_dead_nodes(Model& model, const PassContext&) { return change(model.graph); }

}  // namespace kaon::passes
