#pragma once
#include <set>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/plan/plan_op.h"
#include "engine/program.h"

namespace kaon {

/// A Variant in terms of a program.
struct VariantIds {
  std::set<int32_t> off;                             ///< what switched-off FakeQuantize nodes make
  std::vector<std::pair<int32_t, Value>> constants;  ///< by id

  /// Throws InvalidInput naming what the program does not have, or what has another type or shape.
  VariantIds(const Program& program, const Variant& variant);
  bool empty() const { return off.empty() && constants.empty(); }
  /// The same switches, and constants that lie at the same place in memory.
  bool same_as(const VariantIds& other) const;
};

/// A program traced for one set of input shapes: what every variant of it starts from.
struct Traced {
  PlanGraph graph;  ///< not fused
  std::vector<bool> step_is_static;
};

/// The graph of `variant`, not fused: switched-off nodes are gone, and what follows from changed constants alone is
/// computed anew. Nothing else is.
PlanGraph varied(const Traced& traced, const Program& program, const VariantIds& variant);

/// How many of the first ops of two fused graphs of one program are the same.
size_t shared_ops(const PlanGraph& a, const PlanGraph& b);

}  // namespace kaon
