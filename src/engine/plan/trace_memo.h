#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/program.h"

namespace kaon {

struct ValueFacts;

/// What a node does, whatever its values are called; "" where that cannot be compared.
std::string node_kind(const Node& node);

/// Numbers strings, equal ones alike.
using Numbering = std::unordered_map<std::string, int32_t>;

/// Stands for a value of a trace. Numbers are equal only where types and shapes are, and where contents are.
struct ValueTag {
  int32_t shape = -1;
  int32_t contents = -1;     ///< -1: not known
  bool is_compared = false;  ///< equal contents have equal numbers; else each value has its own
};

/// What the traces of one program share.
struct TraceShared {
  /// By value: initializers and what follows from constants alone, once computed.
  std::vector<std::shared_ptr<ValueFacts>> constants;
  std::vector<ValueTag> tags;       ///< of these
  std::vector<int32_t> step_kinds;  ///< by step: equal for nodes that do the same; -1: it is the only one
  Numbering shapes, contents;
};

/// Nodes that do the same give the same for inputs that are the same: of layers that repeat, a trace runs only one.
class TraceMemo {
 public:
  struct Made {
    const ValueFacts* facts = nullptr;
    ValueTag tag;
  };

  TraceMemo(const Program& program, TraceShared& shared);

  /// Tags a value of this trace, and of all others where it is `constant`.
  ValueTag tag(int32_t id, const ValueFacts& facts, bool constant);
  void tag(int32_t id, ValueTag tag) { tags_[static_cast<size_t>(id)] = tag; }

  /// What an equal step made; null when there was none. `is_fixed` says which inputs' contents are known.
  template <typename Fixed>
  const std::vector<Made>* find(size_t step, bool is_static, Fixed is_fixed) {
    const Step& wanted = program_.steps()[step];
    key_.clear();
    if (shared_.step_kinds[step] < 0) return nullptr;
    key_.push_back(shared_.step_kinds[step]);
    key_.push_back(is_static ? 1 : 0);
    for (size_t i = 0; i < wanted.inputs.size(); ++i) {
      const int32_t id = wanted.inputs[i];
      const bool by_contents = id >= 0 && !wanted.facts->reads_shapes && is_fixed(i) && decides(wanted, i, is_static);
      const ValueTag tag = id < 0 ? ValueTag() : tags_[static_cast<size_t>(id)];
      key_.push_back(by_contents ? tag.contents : -1);
      key_.push_back(tag.shape);
    }
    const auto found = made_.find(key_);
    return found == made_.end() ? nullptr : &found->second;
  }
  /// Keeps what the step made that was not found.
  void add(std::vector<Made> made);

 private:
  struct Hash {
    size_t operator()(const std::vector<int32_t>& key) const;
  };
  /// Whether the contents of an input may matter: to the results, to their shapes, or to whether there is an error.
  bool decides(const Step& step, size_t input, bool is_static) const;

  const Program& program_;
  TraceShared& shared_;
  Numbering shapes_, contents_;  ///< those of this trace alone
  int32_t unique_ = 0;
  std::vector<ValueTag> tags_;
  std::string text_;
  std::vector<int32_t> key_;  ///< of the step that was asked for last
  std::unordered_map<std::vector<int32_t>, std::vector<Made>, Hash> made_;
};

}  // namespace kaon
