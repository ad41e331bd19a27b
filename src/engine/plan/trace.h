#pragma once
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/interpreter.h"
#include "engine/plan/trace_memo.h"
#include "engine/program.h"

namespace kaon {

/// What is known about a value for one set of input shapes.
struct ValueFacts {
  Shape shape;
  DType type = DType::Undefined;
  /// Depends on constants and input shapes alone; then `constant` holds it.
  bool is_static = false;
  /// A float32 matrix that is stored in 16 bits stays as it is stored, where only products read it: they widen it when
  /// they pack it.
  Value constant;

  bool is_narrow() const { return is_static && constant.type != type; }
};

struct Trace {
  std::vector<const ValueFacts*> values;  ///< by the program's value ids; null: it has no value
  /// Owns those that TraceShared does not.
  std::shared_ptr<std::deque<ValueFacts>> made = std::make_shared<std::deque<ValueFacts>>();
  std::vector<bool> step_is_static;  ///< by step
  /// Why shapes cannot be told from the inputs' shapes ("Loop 'x'"); empty when they can.
  std::string unplannable;
};

/// Runs the program once and notes shapes, types and everything that does not depend on the inputs' contents.
/// What follows from a value or edge that `hooks` may replace is not static. With `shapes_only`, costly steps that
/// depend on the inputs give zeros. `shared`, which outlives what is made of the trace, keeps what follows from
/// constants alone: computed by the first trace, taken from there by later ones. `fixed_inputs`, by the program's
/// inputs: those whose contents never change.
Trace trace_program(const Program& program, std::vector<Value> table, const HookTable& hooks, TraceShared& shared,
                    bool shapes_only, const std::vector<bool>& fixed_inputs = {});

}  // namespace kaon
