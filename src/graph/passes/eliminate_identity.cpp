#include <unordered_map>
#include <unordered_set>

#include "graph/passes/passes.h"

namespace kaon::passes {

namespace {

using Renames = std::unordered_map<std::string, std::string>;

/// The names that the graphs inside `graph` give to values of their own.
void collect_inner_names(const Graph& graph, bool inner, std::unordered_set<std::string>& names) {
  if (inner) {
    for (const ValueInfo& input : graph.inputs) names.insert(input.name);
    for (const Initializer& initializer : graph.initializers) names.insert(initializer.name);
  }
  for (const Node& node : graph.nodes) {
    if (inner) names.insert(node.outputs.begin(), node.outputs.end());
    for (const auto& subgraph : subgraphs(node)) collect_inner_names(*subgraph, true, names);
  }
}

void rename(std::string& value, const Renames& renames) {
  const auto it = renames.find(value);
  if (it != renames.end()) value = it->second;
}

/// Renames what a node reads. No name in `renames` may be made inside its subgraphs.
void rename_reads(Node& node, const Renames& renames) {
  if (renames.empty()) return;
  for (std::string& input : node.inputs) rename(input, renames);
  edit_subgraphs(node, [&](Graph& subgraph) {
    for (Node& inside : subgraph.nodes) rename_reads(inside, renames);
    for (ValueInfo& output : subgraph.outputs) rename(output.name, renames);
  });
}

/// Dropout passes its data through unless its third input says that it trains.
bool passes_through(const Node& node, const Graph& graph, const Uses& uses) {
  if (!node.domain.empty() || node.inputs.empty() || node.outputs.empty() || node.outputs[0].empty()) return false;
  if (node.op == "Identity") return true;
  if (node.op != "Dropout") return false;
  if (node.outputs.size() > 1 && !node.outputs[1].empty() &&
      (uses.is_output(node.outputs[1]) || !uses.consumers(node.outputs[1]).empty())) {
    return false;
  }
  if (node.inputs.size() < 3 || node.inputs[2].empty()) return true;
  const Initializer* training = graph.find_initializer(node.inputs[2]);
  return training != nullptr && training->tensor.type() == DType::Bool && training->tensor.size() == 1 &&
         training->tensor.to_int64()[0] == 0;
}

int64_t change(Graph& graph) {
  std::unordered_set<std::string> inner_names;
  collect_inner_names(graph, false, inner_names);
  const Uses uses(graph);
  std::unordered_set<std::string> made;
  Renames aliases;   // a removed output -> what it was a copy of
  Renames promoted;  // a value that takes over the name of a graph output
  std::vector<Node> kept;
  kept.reserve(graph.nodes.size());
  for (Node& node : graph.nodes) {
    const bool removable = passes_through(node, graph, uses) && !inner_names.contains(node.inputs[0]) &&
                           !inner_names.contains(node.outputs[0]);
    rename_reads(node, aliases);
    if (removable) {
      const std::string& from = node.inputs[0];
      const std::string& to = node.outputs[0];
      if (!uses.is_output(to)) {
        aliases[to] = from;
        continue;
      }
      if (made.contains(from) && !uses.is_output(from) && !inner_names.contains(from) &&
          promoted.emplace(from, to).second) {
        continue;
      }
    }
    made.insert(node.outputs.begin(), node.outputs.end());
    kept.push_back(std::move(node));
  }
  const auto changes = std::ssize(graph.nodes) - std::ssize(kept);
  graph.nodes = std::move(kept);
  // Readers after a promoted copy may read it under either name; both are the output's now.
  for (Node& node : graph.nodes) {
    rename_reads(node, promoted);
    for (std::string& output : node.outputs) rename(output, promoted);
  }
  return changes;
}

}  // namespace

int64_t eliminate_identity(Model& model, const PassContext&) { return in_every_graph(model.graph, change); }

}  // namespace kaon::passes
