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

std::shared_ptr<const ValueFacts> facts_of(const Value& value, bool is_static) {
  if (!value.defined()) return nullptr;
  auto facts = std::make_shared<ValueFacts>();
  facts->shape.assign(value.tensor.sizes().begin(), value.tensor.sizes().end());
  facts->type = value.type;
  facts->is_static = is_static;
  if (is_static) facts->constant = {value.tensor.contiguous(), value.type};
  return facts;
}

/// A 16-bit matrix that stands for one of float32.
std::shared_ptr<const ValueFacts> widened(ValueFacts facts) {
  facts.type = DType::Float32;
  return std::make_shared<const ValueFacts>(std::move(facts));
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

  std::vector<bool> given(table.size());
  for (size_t i = 0; i < program.inputs().size(); ++i) {
    given[static_cast<size_t>(program.inputs()[i])] = i >= fixed_inputs.size() || !fixed_inputs[i];
  }
  for (size_t at = 0; at < table.size(); ++at) {
    if (!table[at].defined()) continue;
    const auto id = static_cast<int32_t>(at);
    // An input with a default that the caller left alone is a constant too.
    const bool is_default = program.is_default(id, table[at]);
    std::shared_ptr<const ValueFacts>& facts = trace.values[at];
    if (is_default) facts = shared.constants[at];
    if (facts == nullptr) facts = facts_of(table[at], !given[at] || is_default);
    if (is_default) shared.constants[at] = facts;
    if (memo) memo->tag(id, *facts, is_default);
  }
  std::vector<bool> from_constants(table.size());  // whatever the inputs
  for (const auto& [id, value] : program.constants()) {
    from_constants[static_cast<size_t>(id)] = !given[static_cast<size_t>(id)];
  }

  for (size_t i = 0; i < program.steps().size(); ++i) {
    const Step& step = program.steps()[i];
    const auto is_static = [&](int32_t id) {
      if (id < 0) return true;
      const ValueFacts* facts = trace.values[static_cast<size_t>(id)].get();
      return facts != nullptr && facts->is_static && !hooks.may_replace(id);
    };
    const OpFacts& facts = *step.facts;
    const bool step_static = !facts.random && !hooks.may_replace_edges_of(static_cast<int64_t>(i)) &&
                             (facts.reads_shapes || std::ranges::all_of(step.inputs, is_static));
    const auto is_fixed = [&](size_t input) {
      return is_static(step.inputs[input]) &&
             !hooks.may_replace_edge(static_cast<int64_t>(i), static_cast<int64_t>(input));
    };
    if (!step_static && shape_is_open(facts, step, is_fixed) &&
        !is_settled_if(program.graph().nodes[i], step, table, is_fixed)) {
      trace.unplannable = program.graph().nodes[i].label();
      return trace;
    }
    const bool derives = step_static && std::ranges::all_of(step.inputs, [&](int32_t id) {
                           return id < 0 || from_constants[static_cast<size_t>(id)];
                         });
    const bool known = derives && std::ranges::all_of(step.outputs, [&](int32_t id) {
                         return id < 0 || shared.constants[static_cast<size_t>(id)] != nullptr;
                       });
    const bool narrow = step.widens_weights && derives && is_half(table[static_cast<size_t>(step.inputs[0])].type);
    const std::vector<TraceMemo::Made>* equal = memo && !derives ? memo->find(i, step_static, is_fixed) : nullptr;
    if (narrow) {
      // Kernels of products widen what they read.
      table[static_cast<size_t>(step.outputs[0])] = table[static_cast<size_t>(step.inputs[0])];
    } else if (!known && equal == nullptr) {
      program.run_step(i, table, nullptr, shapes_only && !step_static);
    }
    trace.step_is_static[i] = step_static;
    for (const int32_t id : step.outputs) from_constants[static_cast<size_t>(id)] = derives;
    if (equal != nullptr) {
      for (size_t k = 0; k < step.outputs.size(); ++k) {
        const TraceMemo::Made& one = (*equal)[k];
        table[static_cast<size_t>(step.outputs[k])] = one.value;
        trace.values[static_cast<size_t>(step.outputs[k])] = one.facts;
        memo->tag(step.outputs[k], one.tag);
      }
    } else {
      std::vector<TraceMemo::Made> made(step.outputs.size());
      for (size_t k = 0; k < step.outputs.size(); ++k) {
        const auto at = static_cast<size_t>(step.outputs[k]);
        std::shared_ptr<const ValueFacts>& noted = trace.values[at];
        if (known) {
          noted = shared.constants[at];
          table[at] = noted->constant;
        } else {
          noted = facts_of(table[at], step_static);
          if (narrow) noted = widened(*noted);
          if (derives) shared.constants[at] = noted;
        }
        if (memo && noted != nullptr) made[k] = {table[at], noted, memo->tag(step.outputs[k], *noted, derives)};
      }
      if (memo && !derives) memo->add(std::move(made));
    }
    for (const int32_t id : step.dead) table[static_cast<size_t>(id)] = {};
  }
  for (size_t i = 0; i < program.outputs().size(); ++i) static_cast<void>(program.output(table, i));
  return trace;
}

}  // namespace kaon
