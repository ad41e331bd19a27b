#pragma once
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/edit.h"

namespace kaon::upgrade {

/// What the editors of one model share.
struct Shared {
  FreshNames names;
  int64_t target = 0;
  /// Nodes inside new subgraphs that are written for a newer version than the model's, by first output.
  std::unordered_map<std::string, int64_t> written_for;

  int64_t version_of(const Node& node) const {
    const auto it = node.outputs.empty() ? written_for.end() : written_for.find(node.outputs[0]);
    return it == written_for.end() ? 0 : it->second;
  }
};

/// What a rule may ask about the graph that its node stands in, and add to it.
class Editor {
 public:
  /// `graph` as it was before the upgrade; `outer` is the editor of the graph around it, or nullptr.
  Editor(Graph& graph, Shared& shared, const Editor* outer);

  int64_t target() const { return shared_.target; }
  /// Says that `node`, inside a new subgraph, is written for `version`.
  void set_version(const Node& node, int64_t version) { shared_.written_for[node.outputs.at(0)] = version; }
  /// A new value name that tells whose it is: "<first output of node>_<suffix>".
  std::string name(const Node& node, const std::string& suffix);
  /// Adds an initializer and gives its name.
  std::string constant(const Node& node, const std::string& suffix, const Tensor& tensor);
  /// A helper node: its result is a new value named with `suffix`.
  Node helper(const Node& node, const std::string& suffix, std::string op, std::vector<std::string> inputs);

  /// The constant behind `value`, or nullptr.
  const Tensor* find_constant(const std::string& value) const;
  /// Whether a node or the graph's outputs read `value`.
  bool is_read(const std::string& value) const;
  /// Undefined, or nothing, where the file does not say and the operators before do not tell.
  DType type_of(const std::string& value) const;
  std::optional<int64_t> rank_of(const std::string& value) const;

 private:
  struct Known {
    DType type = DType::Undefined;
    std::optional<int64_t> rank;
  };
  const Known* find(const std::string& value) const;
  void learn(const Node& node);
  std::optional<int64_t> rank_after(const Node& node) const;
  DType type_after(const Node& node) const;

  Shared& shared_;
  const Editor* outer_;
  GraphEdit edit_;
  std::unordered_map<std::string, Tensor> tensors_;
  std::unordered_map<std::string, Known> known_;
};

/// Throws Unsupported: `node` cannot be upgraded because of `reason`.
[[noreturn]] void unsupported(const Node& node, const std::string& reason);

/// A one-dimensional int64 tensor.
Tensor int64_vector(const std::vector<int64_t>& values);

}  // namespace kaon::upgrade
