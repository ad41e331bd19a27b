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
  bool is_compared = false;  ///< equal contents have equal numbers; else only those of constants have
};

/// What a trace did. Traces of the same program for inputs of other extents mostly do the same.
struct TraceCourse {
  static constexpr int32_t kConstant = -1;
  static constexpr int32_t kNothing = -2;
  struct Fact {
    ValueTag tag;
    // The first fact of this shape, and the first with these contents; its own place where it is the first.
    int32_t same_shape = -1;
    int32_t same_contents = -1;
  };

  std::vector<int32_t> given;   ///< values that are there from the beginning, constants aside
  std::vector<size_t> steps;    ///< those that were run, in order, where they follow from more than constants
  std::vector<Fact> facts;      ///< as they were noted: `given`, then what `steps` gave
  std::vector<int32_t> places;  ///< by value: among `facts`, kConstant or kNothing
  std::vector<bool> step_is_static;

  explicit TraceCourse(size_t values) : places(values, kNothing) {}
  /// Notes a fact; the place of it.
  int32_t add(ValueTag tag);
  /// Finds which facts are the same.
  void compare();
};

/// What the traces of one program share.
struct TraceShared {
  /// By value: initializers and what follows from constants alone, once computed.
  std::vector<std::shared_ptr<ValueFacts>> constants;
  std::vector<ValueTag> tags;       ///< of these
  std::vector<int32_t> step_kinds;  ///< by step: equal for nodes that do the same; -1: it is the only one
  Numbering shapes, contents;
  std::unordered_multimap<int32_t, int32_t> large;  ///< constants too large for a number, by their shapes' numbers
  std::shared_ptr<const TraceCourse> course;        ///< of the last trace that nothing was replaced in
};

/// Nodes that do the same give the same for inputs that are the same: of layers that repeat, a trace runs only one.
class TraceMemo {
 public:
  struct Made {
    const ValueFacts* facts = nullptr;
    ValueTag tag;
    int32_t place = TraceCourse::kNothing;
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
  /// Whether a number is that of all traces, not of this one alone.
  static bool is_shared(int32_t number);

 private:
  struct Hash {
    size_t operator()(const std::vector<int32_t>& key) const;
  };
  /// Whether the contents of an input may matter: to the results, to their shapes, or to whether there is an error.
  bool decides(const Step& step, size_t input, bool is_static) const;
  /// The first of the large constants that holds what this one does; itself where it is the first.
  int32_t first_equal(int32_t id, const ValueFacts& facts, int32_t shape);

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
