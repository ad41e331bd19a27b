#include "engine/plan/batch.h"

#include <algorithm>
#include <set>

#include "engine/arith.h"

namespace kaon {

namespace {

bool is_pointwise(const std::string& op) {
  static const std::set<std::string> kOps{
      "Relu", "LeakyRelu", "Sigmoid",    "Tanh", "Exp",   "Clip", "HardSwish", "HardSigmoid", "Elu",  "Erf",
      "Neg",  "Sqrt",      "Reciprocal", "Abs",  "Floor", "Ceil", "Identity",  "Dropout",     "Cast", "Softplus"};
  return kOps.contains(op);
}

bool is_broadcasting(const std::string& op) {
  static const std::set<std::string> kOps{"Add", "Sub", "Mul", "Div", "Min", "Max", "Pow", "PRelu"};
  return kOps.contains(op);
}

bool is_spatial(const std::string& op) {
  static const std::set<std::string> kOps{"Conv",
                                          "ConvTranspose",
                                          "MaxPool",
                                          "AveragePool",
                                          "GlobalAveragePool",
                                          "GlobalMaxPool",
                                          "BatchNormalization",
                                          "InstanceNormalization",
                                          "LRN"};
  return kOps.contains(op);
}

bool is_apart(const PlanGraph& graph, const PlanOp& op, const TensorSpec& spec) {
  const bool given = op.inputs.size() > 1 && op.inputs[1] >= 0;
  const int64_t rank = std::ssize(graph.facts(op.inputs[0]).shape);
  if (spec.rounding == Rounding::Stochastic) return false;  // goes by the element's place in the batch
  if (is_cast(format(spec.format))) return true;
  if (has_own_scales(spec)) return !format(spec.format).global_scale && wrap_axis(spec.axis, rank) >= 1;
  switch (spec.granularity) {
    case Granularity::PerTensor: return given;
    case Granularity::PerChannel: return given == (wrap_axis(spec.axis, rank) >= 1);
    case Granularity::PerGroup: return !given && wrap_axis(spec.axis, rank) >= 1;
    case Granularity::PerToken: return !given && rank >= 2;
    case Granularity::PerBlock: return !given && rank >= 3;
  }
  return false;
}

/// Whether `op` maps sample i of its batched inputs to sample i of its outputs.
bool is_apart(const PlanGraph& graph, const PlanOp& op, const std::vector<bool>& batched, int64_t batch) {
  const Node& node = *op.node;
  const auto is_batched = [&](int32_t id) { return id >= 0 && batched[static_cast<size_t>(id)]; };
  const int64_t rank = std::ssize(graph.facts(op.inputs[0]).shape);
  const Shape& y = graph.facts(op.outputs[0]).shape;
  if (y.empty() || y[0] != batch || rank == 0) return false;
  const bool only_first = is_batched(op.inputs[0]) && std::none_of(op.inputs.begin() + 1, op.inputs.end(), is_batched);
  if (op.is_fake_quantize()) return only_first && is_apart(graph, op, fake_quantize_spec(node));
  if (!node.domain.empty()) return false;
  if (is_pointwise(node.op) || is_spatial(node.op)) return only_first;
  if (is_broadcasting(node.op)) {
    return std::all_of(op.inputs.begin(), op.inputs.end(), [&](int32_t id) {
      const Shape& shape = graph.facts(id).shape;
      if (is_batched(id)) return shape.size() == y.size();
      return shape.size() < y.size() || shape[0] == 1;
    });
  }
  if (node.op == "Gemm")
    return only_first && node.get_int("transA", 0) == 0 &&
           (op.inputs.size() < 3 || graph.facts(op.inputs[2]).shape.size() < 2 ||
            graph.facts(op.inputs[2]).shape[0] == 1);
  if (node.op == "MatMul") return only_first && rank >= 2 && graph.facts(op.inputs[1]).shape.size() == 2;
  if (node.op == "Flatten") return only_first && node.get_int("axis", 1) != 0 && node.get_int("axis", 1) != -rank;
  if (node.op == "Softmax" || node.op == "LogSoftmax")
    return only_first && wrap_axis(node.get_int("axis", rank == 1 ? 0 : 1), rank) >= 1;
  if (node.op == "Concat") {
    return wrap_axis(node.get_int("axis", 1), rank) >= 1 && std::all_of(op.inputs.begin(), op.inputs.end(), is_batched);
  }
  if (node.op == "Transpose") {
    const Shape order = node.get_ints("perm");
    return only_first && !order.empty() && order[0] == 0;
  }
  if (node.op == "Pad") {
    Shape pads = node.get_ints("pads");
    if (op.inputs.size() > 3 && op.inputs[3] >= 0) return false;
    if (op.inputs.size() > 1 && op.inputs[1] >= 0) pads = to_tensor(graph.facts(op.inputs[1]).constant).to_int64();
    return only_first && std::ssize(pads) == 2 * rank && pads[0] == 0 && pads[static_cast<size_t>(rank)] == 0;
  }
  if (node.op == "Slice") {
    Shape axes = node.get_ints("axes");
    if (op.inputs.size() > 3 && op.inputs[3] >= 0) axes = to_tensor(graph.facts(op.inputs[3]).constant).to_int64();
    return only_first && !axes.empty() &&
           std::all_of(axes.begin(), axes.end(), [&](int64_t axis) { return wrap_axis(axis, rank) >= 1; });
  }
  if (node.op == "ReduceMean" || node.op == "ReduceSum" || node.op == "ReduceMax") {
    Shape axes = node.get_ints("axes");
    if (op.inputs.size() > 1 && op.inputs[1] >= 0) axes = to_tensor(graph.facts(op.inputs[1]).constant).to_int64();
    return only_first && !axes.empty() &&
           std::all_of(axes.begin(), axes.end(), [&](int64_t axis) { return wrap_axis(axis, rank) >= 1; });
  }
  return false;
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
