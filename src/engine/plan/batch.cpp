#include "engine/plan/batch.h"

#include <algorithm>

namespace kaon {

namespace {

OpFacts node_facts(const PlanGraph& graph, const PlanOp& op) {
  const auto id = [&](size_t input) { return input < op.inputs.size() ? op.inputs[input] : -1; };
  const auto constant = [&](size_t input) -> std::optional<Tensor> {
    if (id(input) < 0 || !graph.facts(id(input)).is_static) return std::nullopt;
    return to_tensor(graph.facts(id(input)).constant);
  };
  const auto shape = [&](size_t input) {
    return id(input) < 0 ? std::nullopt : std::optional(graph.facts(id(input)).shape);
  };
  return facts_of(NodeView{*op.node, constant, shape});
}

/// Whether `op` maps sample i of its batched inputs to sample i of its outputs.
bool is_apart(const PlanGraph& graph, const PlanOp& op, const std::vector<bool>& batched, int64_t batch) {
  const auto is_batched = [&](int32_t id) { return id >= 0 && batched[static_cast<size_t>(id)]; };
  if (op.inputs.empty()) return false;
  const Shape& y = graph.facts(op.outputs[0]).shape;
  if (y.empty() || y[0] != batch) return false;
  switch (node_facts(graph, op).samples) {
    case Samples::Mixed: return false;
    case Samples::First:
      return is_batched(op.inputs[0]) && std::none_of(op.inputs.begin() + 1, op.inputs.end(), is_batched);
    case Samples::Every: return std::all_of(op.inputs.begin(), op.inputs.end(), is_batched);
    case Samples::Broadcast: break;
  }
  return std::all_of(op.inputs.begin(), op.inputs.end(), [&](int32_t id) {
    if (id < 0) return true;
    const Shape& shape = graph.facts(id).shape;
    if (is_batched(id)) return shape.size() == y.size();
    return shape.size() < y.size() || shape[0] == 1;
  });
}

}  // namespace

bool keeps_samples_apart(const Program& program, const PlanGraph& graph, int64_t batch) {
  std::vector<bool> batched(graph.values.size());
  for (const int32_t id : program.inputs()) {
    const ValueFacts& facts = graph.facts(id);
    if (facts.is_static || facts.type == DType::Undefined) continue;
    if (facts.shape.empty() || facts.shape[0] != batch) return false;
    batched[static_cast<size_t>(id)] = true;
  }
  for (const PlanOp& op : graph.ops) {
    if (op.is_watcher() && batched[static_cast<size_t>(op.inputs[0])]) continue;
    if (op.hook >= 0 || op.outputs.size() != 1 || !is_apart(graph, op, batched, batch)) return false;
    batched[static_cast<size_t>(op.outputs[0])] = true;
  }
  return std::all_of(graph.outputs.begin(), graph.outputs.end(),
                     [&](int32_t id) { return batched[static_cast<size_t>(id)]; });
}

}  // namespace kaon
