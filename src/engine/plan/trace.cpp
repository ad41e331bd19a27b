#include "engine/plan/trace.h"

#include <algorithm>

#include "graph/stored.h"

namespace kaon {

namespace {

/// Whether the shapes that `step` makes could be others for other data; `is_fixed` says that of its inputs' contents.
template <typename Fixed>
bool shape_is_open(const OpFacts& facts, const Step& step, Fixed is_fixed) {
  if (facts.shape != ShapeSource::Inputs) return true;
  return std::ranges::any_of(facts.shape_inputs,
                             [&](size_t input) { return input < step.inputs.size() && !is_fixed(input); });
}

/// Whether `step` is an If that always takes the same branch, in which no shape depends on data.
template <typename Fixed>
bool is_settled_if(const Node& node, const Step& step, const std::vector<Value>& table, Fixed is_fixed) {
  if (!node.domain.empty() || node.op != "If" || !is_fixed(0)) return false;
  const at::Tensor& condition = table[static_cast<size_t>(step.inputs[0])].tensor;
  if (condition.numel() != 1) return false;
  const Subgraph& branch = step.subgraphs.at(condition.item().toBool() ? "then_branch" : "else_branch");
  const Program& program = *branch.program;
  std::vector<Value> inner = program.new_table();
  std::vector<bool> fixed_inputs(program.inputs().size());
  const size_t own = program.graph().inputs.size();
  for (size_t k = 0; k < branch.captures.size(); ++k) {
    const int32_t id = step.inputs[branch.captures[k]];
    if (id >= 0) inner[static_cast<size_t>(program.inputs()[own + k])] = table[static_cast<size_t>(id)];
    fixed_inputs[own + k] = is_fixed(branch.captures[k]);
  }
  const Hooks none;
  std::vector<Value> derived;
  return trace_program(program, std::move(inner), HookTable(program, none), derived, false, fixed_inputs)
      .unplannable.empty();
}

}  // namespace

Trace trace_program(const Program& program, std::vector<Value> table, const HookTable& hooks,
                    std::vector<Value>& derived, bool shapes_only, const std::vector<bool>& fixed_inputs) {
  Trace trace;
  derived.resize(table.size());
  trace.values.resize(table.size());
  trace.step_is_static.resize(program.steps().size());
  const auto note = [&](int32_t id, bool is_static) {
    const Value& value = table[static_cast<size_t>(id)];
    if (!value.defined()) return;
    ValueFacts& facts = trace.values[static_cast<size_t>(id)];
    facts.shape.assign(value.tensor.sizes().begin(), value.tensor.sizes().end());
    facts.type = value.type;
    facts.is_static = is_static;
    if (facts.is_static) facts.constant = {value.tensor.contiguous(), value.type};
  };
  std::vector<bool> given(table.size());
  for (size_t i = 0; i < program.inputs().size(); ++i) {
    given[static_cast<size_t>(program.inputs()[i])] = i >= fixed_inputs.size() || !fixed_inputs[i];
  }
  for (size_t id = 0; id < table.size(); ++id) {
    // An input with a default that the caller left alone is a constant too.
    const auto value = static_cast<int32_t>(id);
    const bool default_kept = program.is_default(value, table[id]);
    note(value, !given[id] || default_kept);
  }
  std::vector<bool> from_constants(table.size());  // whatever the inputs
  for (const auto& [id, value] : program.constants()) {
    from_constants[static_cast<size_t>(id)] = !given[static_cast<size_t>(id)];
  }

  for (size_t i = 0; i < program.steps().size(); ++i) {
    const Step& step = program.steps()[i];
    const Node& node = program.graph().nodes[i];
    const auto is_static = [&](int32_t id) {
      return id < 0 || (trace.values[static_cast<size_t>(id)].is_static && !hooks.may_replace(id));
    };
    const OpFacts& facts = *step.facts;
    const bool step_static = !facts.random && !hooks.may_replace_edges_of(static_cast<int64_t>(i)) &&
                             (facts.reads_shapes || std::ranges::all_of(step.inputs, is_static));
    const auto is_fixed = [&](size_t input) {
      return is_static(step.inputs[input]) &&
             !hooks.may_replace_edge(static_cast<int64_t>(i), static_cast<int64_t>(input));
    };
    if (!step_static && shape_is_open(facts, step, is_fixed) && !is_settled_if(node, step, table, is_fixed)) {
      trace.unplannable = node.label();
      return trace;
    }
    const bool derives = step_static && std::ranges::all_of(step.inputs, [&](int32_t id) {
                           return id < 0 || from_constants[static_cast<size_t>(id)];
                         });
    const bool known = derives && std::ranges::all_of(step.outputs, [&](int32_t id) {
                         return id < 0 || derived[static_cast<size_t>(id)].defined();
                       });
    const bool narrow = step.widens_weights && derives && is_half(table[static_cast<size_t>(step.inputs[0])].type);
    if (narrow) {
      // Kernels of products widen what they read.
      table[static_cast<size_t>(step.outputs[0])] = table[static_cast<size_t>(step.inputs[0])];
    } else if (!known) {
      program.run_step(i, table, nullptr, shapes_only && !step_static);
    }
    trace.step_is_static[i] = step_static;
    for (const int32_t id : step.outputs) {
      if (id < 0) continue;
      const auto at = static_cast<size_t>(id);
      if (known) table[at] = derived[at];
      note(id, step_static);
      if (narrow) trace.values[at].type = DType::Float32;
      if (derives) derived[at] = trace.values[at].constant;
      from_constants[at] = derives;
    }
    for (const int32_t id : step.dead) table[static_cast<size_t>(id)] = {};
  }
  for (size_t i = 0; i < program.outputs().size(); ++i) static_cast<void>(program.output(table, i));
  return trace;
}

}  // namespace kaon
