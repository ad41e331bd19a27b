#include "graph/node_id.h"

#include <algorithm>

#include "base/error.h"

namespace kaon {

const std::string& node_id(const Node& node) {
  static const std::string kNone;
  const auto it = std::ranges::find_if(node.outputs, [](const std::string& output) { return !output.empty(); });
  return it == node.outputs.end() ? kNone : *it;
}

const Node& node_by_id(const Graph& graph, std::string_view id) {
  const auto it = std::ranges::find_if(graph.nodes, [&](const Node& node) { return node_id(node) == id; });
  if (it == graph.nodes.end()) {
    fail(ErrorCode::InvalidInput, "graph '" + graph.name + "'", "no node has '{}' as its first output", id);
  }
  return *it;
}

}  // namespace kaon
