#include "engine/plan/trace.h"

#include <algorithm>
#include <optional>

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
  TraceShared shared;
  return trace_program(program, std::move(inner), HookTable(program, none), shared, false, fixed_inputs)
      .unplannable.empty();
}

ValueFacts facts_of(const Value& value, bool is_static) {
  ValueFacts facts;
  facts.shape.assign(value.tensor.sizes().begin(), value.tensor.sizes().end());
  facts.type = value.type;
  facts.is_static = is_static;
  if (is_static) facts.constant = {value.tensor.contiguous(), value.type};
  return facts;
}

/// A value for kernels: its contents where they are known, else zeros without memory.
Value stand_in(const ValueFacts& facts) {
  if (facts.is_static) return facts.constant;
  Value value;
  Call({}, std::span(&value, 1)).out_zeros(0, facts.shape, facts.type);
  return value;
}

}  // namespace

Trace trace_program(const Program& program, std::vector<Value> table, const HookTable& hooks, TraceShared& shared,
                    bool shapes_only, const std::vector<bool>& fixed_inputs) {
  Trace trace;
  shared.constants.resize(table.size());
  trace.values.resize(table.size());
  trace.step_is_static.resize(program.steps().size());
  std::optional<TraceMemo> memo;
  if (shapes_only) memo.emplace(program, shared);
  const auto note = [&](int32_t id, ValueFacts facts, bool constant) {
    const auto at = static_cast<size_t>(id);
    if (constant) {
      shared.constants[at] = std::make_shared<ValueFacts>(std::move(facts));
      trace.values[at] = shared.constants[at].get();
    } else {
      trace.values[at] = &trace.made->emplace_back(std::move(facts));
    }
  };

  std::vector<bool> given(table.size());
  for (size_t i = 0; i < program.inputs().size(); ++i) {
    given[static_cast<size_t>(program.inputs()[i])] = i >= fixed_inputs.size() || !fixed_inputs[i];
  }
  for (size_t at = 0; at < table.size(); ++at) {
    if (!table[at].defined()) continue;
    const auto id = static_cast<int32_t>(at);
    // An input with a default that the caller left alone is a constant too.
    const bool is_default = program.is_default(id, table[at]);
    if (is_default && shared.constants[at] != nullptr) {
      trace.values[at] = shared.constants[at].get();
    } else {
      note(id, facts_of(table[at], !given[at] || is_default), is_default);
    }
    if (memo) memo->tag(id, *trace.values[at], is_default);
  }
  std::vector<bool> from_constants(table.size());  // whatever the inputs
  for (const auto& [id, value] : program.constants()) {
    from_constants[static_cast<size_t>(id)] = !given[static_cast<size_t>(id)];
  }

  for (size_t i = 0; i < program.steps().size(); ++i) {
    const Step& step = program.steps()[i];
    const auto is_static = [&](int32_t id) {
      if (id < 0) return true;
      const ValueFacts* facts = trace.values[static_cast<size_t>(id)];
      return facts != nullptr && facts->is_static && !hooks.may_replace(id);
    };
    const OpFacts& facts = *step.facts;
    const bool step_static = !facts.random && !hooks.may_replace_edges_of(static_cast<int64_t>(i)) &&
                             (facts.reads_shapes || std::ranges::all_of(step.inputs, is_static));
    const auto is_fixed = [&](size_t input) {
      return is_static(step.inputs[input]) &&
             !hooks.may_replace_edge(static_cast<int64_t>(i), static_cast<int64_t>(input));
    };
    // What an equal step gave, and constants of earlier traces, are in the table only where a kernel reads them.
    const auto fill_inputs = [&] {
      for (const int32_t id : step.inputs) {
        if (id < 0 || table[static_cast<size_t>(id)].defined() || trace.values[static_cast<size_t>(id)] == nullptr) {
          continue;
        }
        table[static_cast<size_t>(id)] = stand_in(*trace.values[static_cast<size_t>(id)]);
      }
    };
    if (!step_static && shape_is_open(facts, step, is_fixed)) {
      fill_inputs();
      if (!is_settled_if(program.graph().nodes[i], step, table, is_fixed)) {
        trace.unplannable = program.graph().nodes[i].label();
        return trace;
      }
    }
    const bool derives = step_static && std::ranges::all_of(step.inputs, [&](int32_t id) {
                           return id < 0 || from_constants[static_cast<size_t>(id)];
                         });
    trace.step_is_static[i] = step_static;
    for (const int32_t id : step.outputs) from_constants[static_cast<size_t>(id)] = derives;
    const auto is_known = [&](int32_t id) { return shared.constants[static_cast<size_t>(id)] != nullptr; };
    const std::vector<TraceMemo::Made>* equal = memo && !derives ? memo->find(i, step_static, is_fixed) : nullptr;
    if (derives && std::ranges::all_of(step.outputs, is_known)) {
      for (const int32_t id : step.outputs) {
        trace.values[static_cast<size_t>(id)] = shared.constants[static_cast<size_t>(id)].get();
        if (memo) memo->tag(id, *trace.values[static_cast<size_t>(id)], true);
      }
    } else if (equal != nullptr) {
      for (size_t k = 0; k < step.outputs.size(); ++k) {
        trace.values[static_cast<size_t>(step.outputs[k])] = (*equal)[k].facts;
        memo->tag(step.outputs[k], (*equal)[k].tag);
      }
    } else {
      fill_inputs();
      const bool narrow = step.widens_weights && derives && is_half(table[static_cast<size_t>(step.inputs[0])].type);
      if (narrow) {
        // Kernels of products widen what they read.
        table[static_cast<size_t>(step.outputs[0])] = table[static_cast<size_t>(step.inputs[0])];
      } else {
        program.run_step(i, table, nullptr, shapes_only && !step_static);
      }
      std::vector<TraceMemo::Made> made(step.outputs.size());
      for (size_t k = 0; k < step.outputs.size(); ++k) {
        const int32_t id = step.outputs[k];
        if (!table[static_cast<size_t>(id)].defined()) continue;
        ValueFacts noted = facts_of(table[static_cast<size_t>(id)], step_static);
        if (narrow) noted.type = DType::Float32;
        note(id, std::move(noted), derives);
        made[k].facts = trace.values[static_cast<size_t>(id)];
        if (memo) made[k].tag = memo->tag(id, *made[k].facts, derives);
      }
      if (memo && !derives) memo->add(std::move(made));
    }
    for (const int32_t id : step.dead) table[static_cast<size_t>(id)] = {};
  }
  for (const int32_t id : program.outputs()) {
    if (trace.values[static_cast<size_t>(id)] == nullptr) program.fail_unset(id);
  }
  return trace;
}

}  // namespace kaon
