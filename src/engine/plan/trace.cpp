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

/// Puts the step's inputs, or zeros for them, into the table where they are not. What is not given has null for facts.
template <typename KnownFacts>
void fill_inputs(const Step& step, std::vector<Value>& table, KnownFacts known_facts) {
  for (const int32_t id : step.inputs) {
    if (id < 0 || table[static_cast<size_t>(id)].defined()) continue;
    if (const ValueFacts* facts = known_facts(id)) table[static_cast<size_t>(id)] = stand_in(*facts);
  }
}

/// Values that are in the table from the beginning, the program's constants aside.
std::vector<int32_t> given_values(const Program& program, const std::vector<Value>& table) {
  std::vector<int32_t> given;
  for (size_t at = 0; at < table.size(); ++at) {
    const auto id = static_cast<int32_t>(at);
    if (table[at].defined() && !program.is_default(id, table[at])) given.push_back(id);
  }
  return given;
}

/// Runs the steps that an earlier trace ran. What it found to be equal must be equal again: then every other step gives
/// what the step gives that it was equal to. Nothing where that does not hold.
std::optional<Trace> follow(const TraceCourse& course, const Program& program, const std::vector<Value>& given,
                            TraceShared& shared) {
  if (given_values(program, given) != course.given) return std::nullopt;
  Trace trace;
  std::deque<ValueFacts>& made = *trace.made;
  TraceMemo memo(program, shared);
  std::vector<ValueTag> tags;
  tags.reserve(course.facts.size());
  const auto known_facts = [&](int32_t id) -> const ValueFacts* {
    const int32_t place = course.places[static_cast<size_t>(id)];
    if (place == TraceCourse::kConstant) return shared.constants[static_cast<size_t>(id)].get();
    return place < 0 ? nullptr : &made[static_cast<size_t>(place)];
  };
  std::vector<Value> table(given.size());
  const auto is_as_before = [&](int32_t id, bool is_static) {
    const bool noted = table[static_cast<size_t>(id)].defined();
    if (noted != (course.places[static_cast<size_t>(id)] == std::ssize(made))) return false;
    if (!noted) return true;
    const TraceCourse::Fact& before = course.facts[made.size()];
    made.push_back(facts_of(table[static_cast<size_t>(id)], is_static));
    const ValueTag& now = tags.emplace_back(memo.tag(id, made.back(), false));
    const auto same = [&](int32_t ValueTag::*number, int32_t first) {
      const int32_t wanted =
          TraceMemo::is_shared(before.tag.*number) ? before.tag.*number : tags[static_cast<size_t>(first)].*number;
      return now.*number == wanted;
    };
    return now.is_compared == before.tag.is_compared && same(&ValueTag::shape, before.same_shape) &&
           same(&ValueTag::contents, before.same_contents);
  };
  for (const int32_t id : course.given) {
    table[static_cast<size_t>(id)] = given[static_cast<size_t>(id)];
    if (!is_as_before(id, false)) return std::nullopt;
  }
  for (const size_t i : course.steps) {
    const Step& step = program.steps()[i];
    fill_inputs(step, table, known_facts);
    program.run_step(i, table, nullptr, !course.step_is_static[i]);
    for (const int32_t id : step.outputs) {
      if (!is_as_before(id, course.step_is_static[i])) return std::nullopt;
    }
    for (const int32_t id : step.dead) table[static_cast<size_t>(id)] = {};
  }
  trace.values.resize(table.size());
  for (size_t at = 0; at < table.size(); ++at) trace.values[at] = known_facts(static_cast<int32_t>(at));
  trace.step_is_static = course.step_is_static;
  return trace;
}

}  // namespace

Trace trace_program(const Program& program, std::vector<Value> table, const HookTable& hooks, TraceShared& shared,
                    bool shapes_only, const std::vector<bool>& fixed_inputs) {
  const bool as_it_is = shapes_only && !hooks.may_replace_any() && fixed_inputs.empty();
  if (as_it_is && shared.course != nullptr) {
    if (std::optional<Trace> followed = follow(*shared.course, program, table, shared)) return std::move(*followed);
  }
  Trace trace;
  shared.constants.resize(table.size());
  trace.values.resize(table.size());
  trace.step_is_static.resize(program.steps().size());
  std::optional<TraceMemo> memo;
  if (shapes_only) memo.emplace(program, shared);
  std::optional<TraceCourse> course;
  if (as_it_is) course.emplace(table.size());
  const auto keep = [&](int32_t id, const TraceMemo::Made& made) {
    trace.values[static_cast<size_t>(id)] = made.facts;
    if (memo) memo->tag(id, made.tag);
    if (course) course->places[static_cast<size_t>(id)] = made.place;
  };
  const auto keep_constant = [&](int32_t id) {
    const ValueFacts* facts = shared.constants[static_cast<size_t>(id)].get();
    keep(id, {facts, memo ? memo->tag(id, *facts, true) : ValueTag(), TraceCourse::kConstant});
  };
  const auto note = [&](int32_t id, ValueFacts facts, bool constant) {
    if (constant) {
      std::shared_ptr<ValueFacts>& known = shared.constants[static_cast<size_t>(id)];
      if (known == nullptr) known = std::make_shared<ValueFacts>(std::move(facts));
      keep_constant(id);
      return TraceMemo::Made();
    }
    TraceMemo::Made made{.facts = &trace.made->emplace_back(std::move(facts))};
    if (memo) made.tag = memo->tag(id, *made.facts, false);
    if (course) made.place = course->add(made.tag);
    keep(id, made);
    return made;
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
      keep_constant(id);
    } else {
      note(id, facts_of(table[at], !given[at] || is_default), is_default);
    }
    if (!is_default && !given[at]) course.reset();
  }
  if (course) course->given = given_values(program, table);
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
    const auto traced = [&](int32_t id) { return trace.values[static_cast<size_t>(id)]; };
    if (!step_static && shape_is_open(facts, step, is_fixed)) {
      fill_inputs(step, table, traced);
      course.reset();
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
      for (const int32_t id : step.outputs) keep_constant(id);
    } else if (equal != nullptr) {
      for (size_t k = 0; k < step.outputs.size(); ++k) keep(step.outputs[k], (*equal)[k]);
    } else {
      fill_inputs(step, table, traced);
      if (course && !derives) course->steps.push_back(i);
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
        made[k] = note(id, std::move(noted), derives);
      }
      if (memo && !derives) memo->add(std::move(made));
    }
    for (const int32_t id : step.dead) table[static_cast<size_t>(id)] = {};
  }
  for (const int32_t id : program.outputs()) {
    if (trace.values[static_cast<size_t>(id)] == nullptr) program.fail_unset(id);
  }
  if (course) {
    course->step_is_static = trace.step_is_static;
    course->compare();
    shared.course = std::make_shared<const TraceCourse>(std::move(*course));
  }
  return trace;
}

}  // namespace kaon
