#include "graph/passes/passes.h"

namespace kaon::passes {

int64_t in_every_graph(Graph& graph, const std::function<int64_t(Graph&)>& change) {
  int64_t changes = change(graph);
  for (Node& node : graph.nodes) {
    edit_subgraphs(node, [&](Graph& subgraph) { changes += in_every_graph(subgraph, change); });
  }
  return changes;
}

}  // namespace kaon::passes
