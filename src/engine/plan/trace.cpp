#include "engine/plan/trace.h"

#include <algorithm>
#include <map>
#include <set>

namespace kaon {

namespace {

/// Inputs that decide an output's shape by their contents. An empty list: the shape depends on the data in any case.
const std::map<std::string, std::vector<size_t>>& shape_inputs() {
  static const std::map<std::string, std::vector<size_t>> kRows{
      {"Reshape", {1}},
      {"Expand", {1}},
      {"Tile", {1, 2}},
      {"Slice", {1, 2, 3, 4}},
      {"Pad", {1, 3}},
      {"Range", {0, 1, 2}},
      {"ConstantOfShape", {0}},
      {"OneHot", {1}},
      {"Resize", {1, 2, 3}},
      {"Upsample", {1}},
      {"TopK", {1}},
      {"Split", {1}},
      {"Squeeze", {1}},
      {"Unsqueeze", {1}},
      {"ReduceSum", {1}},
      {"ReduceMean", {1}},
      {"ReduceMax", {1}},
      {"ReduceMin", {1}},
      {"ReduceProd", {1}},
      {"ReduceL1", {1}},
      {"ReduceL2", {1}},
      {"ReduceLogSum", {1}},
      {"ReduceLogSumExp", {1}},
      {"ReduceSumSquare", {1}},
      {"CenterCropPad", {1}},
      {"AffineGrid", {1}},
      {"MaxUnpool", {2}},
      {"DFT", {1, 2}},
      {"STFT", {1, 3}},
      {"Col2Im", {1, 2}},
      {"HannWindow", {0}},
      {"HammingWindow", {0}},
      {"BlackmanWindow", {0}},
      {"MelWeightMatrix", {0, 1, 2, 3, 4}},
  };
  return kRows;
}

bool shape_follows_data(const std::string& op) {
  static const std::set<std::string> kOps{"NonZero", "Unique", "Compress", "NonMaxSuppression"};
  return kOps.contains(op);
}

bool is_random(const std::string& op) {
  static const std::set<std::string> kOps{"RandomNormal",      "RandomNormalLike", "RandomUniform",
                                          "RandomUniformLike", "Bernoulli",        "Multinomial"};
  return kOps.contains(op);
}

}  // namespace

Trace trace_program(const Program& program, std::vector<Value> table, const HookTable& hooks, bool shapes_only) {
  Trace trace;
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
  for (const int32_t id : program.inputs()) given[static_cast<size_t>(id)] = true;
  for (size_t id = 0; id < table.size(); ++id) {
    // An input with a default that the caller left alone is a constant too.
    const auto value = static_cast<int32_t>(id);
    const bool default_kept = program.is_default(value, table[id]);
    note(value, !given[id] || default_kept);
  }

  for (size_t i = 0; i < program.steps().size(); ++i) {
    const Step& step = program.steps()[i];
    const Node& node = program.graph().nodes[i];
    const auto is_static = [&](int32_t id) {
      return id < 0 || (trace.values[static_cast<size_t>(id)].is_static && !hooks.may_replace(id));
    };
    const bool only_shape = node.domain.empty() && (node.op == "Shape" || node.op == "Size");
    const bool step_static = !is_random(node.op) && !hooks.may_replace_edges_of(static_cast<int64_t>(i)) &&
                             (only_shape || std::all_of(step.inputs.begin(), step.inputs.end(), is_static));
    if (!step_static) {
      bool unknown = shape_follows_data(node.op) || !subgraphs(node).empty();
      const auto row = shape_inputs().find(node.op);
      if (row != shape_inputs().end()) {
        for (const size_t input : row->second) {
          unknown |= input < step.inputs.size() &&
                     (!is_static(step.inputs[input]) ||
                      hooks.may_replace_edge(static_cast<int64_t>(i), static_cast<int64_t>(input)));
        }
      }
      if (unknown) {
        trace.unplannable = node.label();
        return trace;
      }
    }
    program.run_step(i, table, nullptr, shapes_only && !step_static);
    trace.step_is_static[i] = step_static;
    for (const int32_t id : step.outputs) {
      if (id >= 0) note(id, step_static);
    }
    for (const int32_t id : step.dead) table[static_cast<size_t>(id)] = {};
  }
  return trace;
}

}  // namespace kaon
