#include "graph/verify.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"

namespace kaon {

namespace {

/// The values that exist at one point of a graph, with those of the graphs around it.
struct Scope {
  const Scope* outer = nullptr;
  std::unordered_set<std::string_view> made;

  bool sees(std::string_view value) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->outer) {
      if (scope->made.contains(value)) return true;
    }
    return false;
  }
};

void verify_attributes(const Node& node) {
  std::unordered_set<std::string_view> seen;
  for (const Attribute& attribute : node.attributes) {
    if (attribute.name.empty()) fail(ErrorCode::InvalidInput, node.label(), "an attribute without a name");
    if (!seen.insert(attribute.name).second) {
      fail(ErrorCode::InvalidInput, node.label(), "attribute '{}' is given twice", attribute.name);
    }
  }
}

[[noreturn]] void fail_unmade(const Graph& graph, const Node& node, const std::string& value) {
  for (const Node& other : graph.nodes) {
    if (std::find(other.outputs.begin(), other.outputs.end(), value) == other.outputs.end()) continue;
    if (&other == &node) fail(ErrorCode::InvalidInput, node.label(), "reads '{}', which it makes itself", value);
    fail(ErrorCode::InvalidInput, node.label(), "reads '{}' before {} makes it", value, other.label());
  }
  fail(ErrorCode::InvalidInput, node.label(),
       "reads '{}', which is no graph input, no initializer and no node's output", value);
}

void verify(const Graph& graph, const Scope* outer) {
  const std::string where = "graph '" + graph.name + "'";
  Scope scope{outer, {}};
  for (const ValueInfo& input : graph.inputs) {
    if (input.name.empty()) fail(ErrorCode::InvalidInput, where, "an input without a name");
    if (!scope.made.insert(input.name).second) {
      fail(ErrorCode::InvalidInput, where, "input '{}' is given twice", input.name);
    }
  }
  std::unordered_set<std::string_view> initialized;
  for (const Initializer& initializer : graph.initializers) {
    if (initializer.name.empty()) fail(ErrorCode::InvalidInput, where, "an initializer without a name");
    if (!initialized.insert(initializer.name).second) {
      fail(ErrorCode::InvalidInput, where, "initializer '{}' is given twice", initializer.name);
    }
    scope.made.insert(initializer.name);
  }
  for (const Node& node : graph.nodes) {
    if (node.op.empty()) fail(ErrorCode::InvalidInput, node.label(), "a node without an operator");
    verify_attributes(node);
    for (const std::string& input : node.inputs) {
      if (!input.empty() && !scope.sees(input)) fail_unmade(graph, node, input);
    }
    for (const auto& subgraph : subgraphs(node)) {
      verify(*subgraph, &scope);
    }
    for (const std::string& output : node.outputs) {
      if (!output.empty() && !scope.made.insert(output).second) {
        fail(ErrorCode::InvalidInput, node.label(), "makes '{}', which exists already", output);
      }
    }
  }
  for (const ValueInfo& output : graph.outputs) {
    if (output.name.empty()) fail(ErrorCode::InvalidInput, where, "an output without a name");
    if (!scope.sees(output.name)) {
      fail(ErrorCode::InvalidInput, where, "output '{}' is made by no node, input or initializer", output.name);
    }
  }
}

/// For each node the nodes that make what it reads, each once.
std::vector<std::vector<size_t>> dependencies(const Graph& graph) {
  std::unordered_map<std::string_view, size_t> producers;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const std::string& output : graph.nodes[i].outputs) {
      if (!output.empty()) producers.emplace(output, i);
    }
  }
  std::vector<std::vector<size_t>> needs(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto reads = [&](const std::string& value) {
      const auto it = producers.find(value);
      if (it != producers.end()) needs[i].push_back(it->second);
    };
    for (const std::string& input : graph.nodes[i].inputs) reads(input);
    for (const auto& subgraph : subgraphs(graph.nodes[i])) {
      for (const std::string& value : captured_values(*subgraph)) reads(value);
    }
    std::sort(needs[i].begin(), needs[i].end());
    needs[i].erase(std::unique(needs[i].begin(), needs[i].end()), needs[i].end());
  }
  return needs;
}

/// Walks from an unplaced node to the unplaced nodes it needs until one comes up again.
[[noreturn]] void fail_cycle(const Graph& graph, const std::vector<std::vector<size_t>>& needs,
                             const std::vector<bool>& placed) {
  constexpr size_t kMostShown = 8;
  std::vector<size_t> path;
  std::vector<bool> on_path(graph.nodes.size(), false);
  size_t at = static_cast<size_t>(std::find(placed.begin(), placed.end(), false) - placed.begin());
  while (!on_path[at]) {
    on_path[at] = true;
    path.push_back(at);
    at = *std::find_if(needs[at].begin(), needs[at].end(), [&](size_t i) { return !placed[i]; });
  }
  path.erase(path.begin(), std::find(path.begin(), path.end(), at));
  // The walk went against the data; tell the cycle the way the data flows.
  std::reverse(path.begin() + 1, path.end());
  std::string text;
  for (size_t i = 0; i < std::min(path.size(), kMostShown); ++i) text += graph.nodes[path[i]].label() + " → ";
  if (path.size() > kMostShown) text += "… → ";
  fail(ErrorCode::InvalidInput, graph.nodes[at].label(), "the nodes form a cycle: {}{}", text, graph.nodes[at].label());
}

}  // namespace

void verify(const Graph& graph) { verify(graph, nullptr); }

void verify(const Model& model) { verify(model.graph); }

void sort_nodes(Graph& graph) {
  for (Node& node : graph.nodes) edit_subgraphs(node, [](Graph& subgraph) { sort_nodes(subgraph); });
  const auto needs = dependencies(graph);
  bool sorted = true;
  for (size_t i = 0; i < needs.size(); ++i) sorted = sorted && (needs[i].empty() || needs[i].back() < i);
  if (sorted) return;

  std::vector<size_t> missing(needs.size());
  std::vector<std::vector<size_t>> readers(needs.size());
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
  for (size_t i = 0; i < needs.size(); ++i) {
    missing[i] = needs[i].size();
    for (const size_t producer : needs[i]) readers[producer].push_back(i);
    if (missing[i] == 0) ready.push(i);
  }
  std::vector<bool> placed(needs.size(), false);
  std::vector<size_t> order;
  order.reserve(needs.size());
  while (!ready.empty()) {
    const size_t next = ready.top();
    ready.pop();
    placed[next] = true;
    order.push_back(next);
    for (const size_t reader : readers[next]) {
      if (--missing[reader] == 0) ready.push(reader);
    }
  }
  if (order.size() != needs.size()) fail_cycle(graph, needs, placed);
  std::vector<Node> nodes;
  nodes.reserve(order.size());
  for (const size_t i : order) nodes.push_back(std::move(graph.nodes[i]));
  graph.nodes = std::move(nodes);
}

}  // namespace kaon
