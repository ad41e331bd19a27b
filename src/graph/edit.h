#pragma once
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"
#include "graph/node_id.h"

namespace kaon {

/// Edits a graph. Nodes are known by their id, which is what they were called when the edit began; they come and go
/// only in finish().
class GraphEdit {
 public:
  explicit GraphEdit(Graph& graph) : GraphEdit(graph, nullptr) {}
  /// New names are also new to whatever else `names` knows: a subgraph must not take those of the graphs around it.
  GraphEdit(Graph& graph, FreshNames& names) : GraphEdit(graph, &names) {}
  GraphEdit(const GraphEdit&) = delete;

  Graph& graph() { return graph_; }
  /// Throws Internal where no node had this id.
  Node& node(const std::string& id);
  /// Who makes and reads what, as the graph was at first.
  const Uses& uses() const { return uses_; }

  std::string fresh(const std::string& wanted);
  /// What fresh() gave.
  const std::vector<std::string>& made() const { return made_; }
  /// The name of an initializer that holds `tensor`; equal ones are stored once.
  std::string constant(const std::string& wanted, const Tensor& tensor);
  std::string scalar(float value);
  /// The same without looking for an equal one.
  std::string own_constant(const std::string& wanted, const Tensor& tensor);

  /// A node with one new output, "<about>_<what>". It is not in the graph yet.
  Node make(const std::string& op, std::vector<std::string> inputs, const std::string& about, const std::string& what);
  /// Puts `node` behind the node that makes `value` and whatever was put there before; at the start of the graph where
  /// no node makes it.
  void insert_behind(const std::string& value, Node node) { behind_[uses_.producer(value)].push_back(std::move(node)); }
  /// Puts `node` before the first of `readers`.
  void insert_before(const std::vector<Reader>& readers, Node node);
  /// `parts` stand where node `id` stood.
  void replace(const std::string& id, std::vector<Node> parts) { replaced_[index_of(id)] = std::move(parts); }

  /// The node that makes `value` makes `to` in its place; who reads `value` goes on reading it.
  void rename(const std::string& value, const std::string& to);
  void redirect(const std::vector<Reader>& readers, const std::string& to);
  /// The edges on which nodes of this graph read `value`.
  std::vector<Reader> readers_of(const std::string& value) const;

  /// Puts the nodes in their places.
  void finish();

 private:
  GraphEdit(Graph& graph, FreshNames* names);
  int64_t index_of(const std::string& id) const;

  Graph& graph_;
  Uses uses_;
  std::vector<std::string> ids_;  ///< of the nodes
  std::optional<FreshNames> own_names_;
  FreshNames* names_;
  std::vector<std::string> made_;
  std::unordered_multimap<size_t, size_t> constants_;  ///< hash of the bytes -> index among the initializers
  std::map<int64_t, std::vector<Node>> before_, behind_, replaced_;
};

/// Removes the initializers that no node and no output of the graph reads, and the Casts of those.
void drop_unread_constants(Graph& graph);

}  // namespace kaon
