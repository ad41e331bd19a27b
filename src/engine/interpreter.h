#pragma once
#include <map>
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

  bool on_value(int32_t id) const { return on_value_.contains(id); }
  bool on_edges_of(int64_t node) const;
  bool on_edge(int64_t node, int64_t input) const { return on_edge_.contains({node, input}); }
  void value_made(int32_t id, Value& value) const;
  void edge_read(int64_t node, int64_t input, Value& value) const;

 private:
  void apply(const std::vector<const Hook*>& hooks, int32_t id, Value& value) const;

  const Program& program_;
  std::map<int32_t, std::vector<const Hook*>> on_value_;
  std::map<std::pair<int64_t, int64_t>, std::vector<const Hook*>> on_edge_;
};

/// Runs every node with its ATen kernel, one after the other.
std::vector<Tensor> interpret(const Program& program, std::vector<Value> table, const Hooks& hooks);

}  // namespace kaon
