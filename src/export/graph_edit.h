#pragma once
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"
#include "quant/quantizer.h"

namespace kaon {

/// Edits a graph whose nodes are referred to by their index: nodes come and go only in finish().
class GraphEdit {
 public:
  explicit GraphEdit(Graph& graph) : graph_(graph), uses_(graph), names_(graph) {}

  Graph& graph() { return graph_; }
  Node& node(int64_t index) { return graph_.nodes[static_cast<size_t>(index)]; }
  /// Who makes and reads what, as the graph was at first.
  const Uses& uses() const { return uses_; }

  std::string fresh(const std::string& wanted) { return names_.make(wanted); }
  /// The name of an initializer that holds `tensor`; equal ones are stored once.
  std::string constant(const std::string& wanted, const Tensor& tensor);
  std::string scalar(float value);
  /// The same without looking for an equal one.
  std::string own_constant(const std::string& wanted, const Tensor& tensor);

  /// A node with one new output, "<about>_<what>". It is not in the graph yet.
  Node make(const std::string& op, std::vector<std::string> inputs, const std::string& about, const std::string& what);
  /// Puts `node` behind node `index` and whatever was put there before; -1 is the start of the graph.
  void insert_after(int64_t index, Node node) { after_[index].push_back(std::move(node)); }
  void insert_before(int64_t index, Node node) { before_[index].push_back(std::move(node)); }
  /// `parts` stand where node `index` stood.
  void replace(int64_t index, std::vector<Node> parts) { replaced_[index] = std::move(parts); }

  void redirect(const std::vector<Reader>& readers, const std::string& to);
  /// The edges on which nodes of this graph read `value`.
  std::vector<Reader> readers_of(const std::string& value) const;

  void finish();

 private:
  Graph& graph_;
  Uses uses_;
  FreshNames names_;
  std::unordered_multimap<size_t, size_t> constants_;  ///< hash of the bytes -> index among the initializers
  std::map<int64_t, std::vector<Node>> before_, after_, replaced_;
};

}  // namespace kaon
