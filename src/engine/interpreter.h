#pragma once
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/program.h"

namespace kaon {

/// The hooks of a run, by where they apply. `hooks` must outlive it.
class HookTable {
 public:
  /// Throws InvalidInput for a hook on a value or edge that the program does not have.
  HookTable(const Program& program, const Hooks& hooks);

  /// Whether a hook may put another value in the place of this one.
  bool may_replace(int32_t id) const { return replaced_.contains(id); }
  bool may_replace_edge(int64_t node, int64_t input) const { return replaced_edges_.contains({node, input}); }
  bool may_replace_edges_of(int64_t node) const;
  bool may_replace_any() const { return !replaced_.empty() || !replaced_edges_.empty(); }
  bool on_edges_of(int64_t node) const;
  void value_made(int32_t id, Value& value) const;
  void edge_read(int64_t node, int64_t input, Value& value) const;

 private:
  void apply(const std::vector<const Hooks::Entry*>& hooks, int32_t id, Value& value) const;

  const Program& program_;
  std::map<int32_t, std::vector<const Hooks::Entry*>> on_value_;
  std::map<std::pair<int64_t, int64_t>, std::vector<const Hooks::Entry*>> on_edge_;
  std::set<int32_t> replaced_;
  std::set<std::pair<int64_t, int64_t>> replaced_edges_;
};

/// Throws InvalidInput unless `type` is float32.
void check_watchable(const std::string& name, DType type);
/// Shows a value to a watcher.
void show(const Watcher& watcher, const std::string& name, const Value& value);

/// A table with the constants and the checked inputs in place.
std::vector<Value> load_inputs(const Program& program, const TensorMap& inputs);

/// Runs every node with its ATen kernel, one after the other; those that make a value of `off` pass on what they read.
std::vector<Tensor> interpret(const Program& program, std::vector<Value> table, const Hooks& hooks,
                              const std::set<int32_t>& off = {});

}  // namespace kaon
