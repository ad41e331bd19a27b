#include "engine/plan/variant.h"

#include <algorithm>
#include <numeric>

#include "engine/plan/codes.h"

namespace kaon {

namespace {

/// The step that makes `id`, or -1.
int64_t producer(const Program& program, int32_t id) {
  for (size_t i = 0; i < program.steps().size(); ++i) {
    const std::vector<int32_t>& outputs = program.steps()[i].outputs;
    if (std::ranges::find(outputs, id) != outputs.end()) return static_cast<int64_t>(i);
  }
  return -1;
}

/// Whether an op of each graph reads the same value. Constants that fusing made may stand under other ids.
bool same_value(const PlanGraph& a, int32_t in_a, const PlanGraph& b, int32_t in_b) {
  if (in_a < 0 || in_b < 0) return in_a == in_b;
  const ValueFacts& left = a.facts(in_a);
  const ValueFacts& right = b.facts(in_b);
  if (left.is_static != right.is_static) return false;
  return left.is_static ? same_bytes(left.constant, right.constant) : in_a == in_b;
}

bool same_op(const PlanGraph& a, const PlanOp& left, const PlanGraph& b, const PlanOp& right) {
  if (left.step != right.step || left.node != right.node || left.hook != right.hook) return false;
  if (left.outputs != right.outputs || left.inputs.size() != right.inputs.size()) return false;
  if (left.post.size() != right.post.size()) return false;
  for (size_t i = 0; i < left.inputs.size(); ++i) {
    if (!same_value(a, left.inputs[i], b, right.inputs[i])) return false;
  }
  for (size_t i = 0; i < left.post.size(); ++i) {
    const PostOp& x = left.post[i];
    const PostOp& y = right.post[i];
    if (x.algorithm != y.algorithm || x.alpha != y.alpha || x.beta != y.beta) return false;
    if (!same_value(a, x.operand, b, y.operand)) return false;
  }
  if (!same_value(a, left.fold_scale, b, right.fold_scale)) return false;
  if (!same_value(a, left.fold_shift, b, right.fold_shift)) return false;
  if ((left.codes == nullptr) != (right.codes == nullptr)) return false;
  if (left.codes != nullptr && !left.codes->same_grids(*right.codes)) return false;
  if ((left.quantizer == nullptr) != (right.quantizer == nullptr)) return false;
  return left.quantizer == nullptr || *left.quantizer == *right.quantizer;
}

}  // namespace

VariantIds::VariantIds(const Program& program, const Variant& variant) {
  for (const std::string& name : variant.off) {
    const int32_t id = program.find_value(name);
    const int64_t step = id < 0 ? -1 : producer(program, id);
    if (step < 0 || !is_fake_quantize(program.graph().nodes[static_cast<size_t>(step)])) {
      fail(ErrorCode::InvalidInput, name, "cannot be switched off: no FakeQuantize of this model makes it");
    }
    off.insert(id);
  }
  for (const auto& [name, tensor] : variant.constants) {
    const int32_t id = program.find_value(name);
    if (id < 0 || !program.is_constant(id)) {
      fail(ErrorCode::InvalidInput, name, "cannot be changed: the model has no such constant");
    }
    const Value& before = program.constant(id);
    Value value = to_value(tensor);
    if (value.type != before.type || value.tensor.sizes() != before.tensor.sizes()) {
      fail(ErrorCode::InvalidInput, name, "is {} {} in the model and {} {} in the variant", name_of(before.type),
           to_string(before.tensor.sizes()), name_of(tensor.type()), to_string(tensor.shape()));
    }
    constants.emplace_back(id, std::move(value));
  }
}

bool VariantIds::same_as(const VariantIds& other) const {
  return off == other.off && std::ranges::equal(constants, other.constants, [](const auto& a, const auto& b) {
           return a.first == b.first && a.second.tensor.data_ptr() == b.second.tensor.data_ptr();
         });
}

PlanGraph varied(const Traced& traced, const Program& program, const VariantIds& variant) {
  PlanGraph graph = traced.graph;
  if (variant.empty()) return graph;
  std::vector<bool> changed(graph.values.size());
  const auto change = [&](int32_t id, const Value& value) {
    ValueFacts other = graph.facts(id);
    other.constant = {value.tensor.contiguous(), value.type};
    graph.change(id, std::move(other));
    changed[static_cast<size_t>(id)] = true;
  };
  for (const auto& [id, value] : variant.constants) {
    if (graph.facts(id).is_static) change(id, value);
  }
  for (size_t i = 0; i < program.steps().size(); ++i) {
    const Step& step = program.steps()[i];
    if (!traced.step_is_static[i]) continue;
    if (step.outputs[0] >= 0 && variant.off.contains(step.outputs[0])) {
      change(step.outputs[0], graph.facts(step.inputs[0]).constant);
      continue;
    }
    if (std::ranges::none_of(step.inputs, [&](int32_t id) { return id >= 0 && changed[static_cast<size_t>(id)]; })) {
      continue;
    }
    std::vector<Value> table(program.value_names().size());
    for (const int32_t id : step.inputs) {
      if (id >= 0) table[static_cast<size_t>(id)] = graph.facts(id).constant;
    }
    program.run_step(i, table);
    for (const int32_t id : step.outputs) {
      if (id < 0) continue;
      const Value& made = table[static_cast<size_t>(id)];
      if (made.tensor.sizes() != graph.facts(id).constant.tensor.sizes()) {
        fail(ErrorCode::Unsupported, program.graph().nodes[i].label(), "a changed constant changes the shape of '{}'",
             program.value_names()[static_cast<size_t>(id)]);
      }
      change(id, made);
    }
  }

  std::vector<int32_t> stands_for(graph.values.size());
  std::iota(stands_for.begin(), stands_for.end(), 0);
  const auto resolve = [&](int32_t& id) {
    if (id >= 0) id = stands_for[static_cast<size_t>(id)];
  };
  std::vector<PlanOp> kept;
  for (PlanOp& op : graph.ops) {
    for (int32_t& id : op.inputs) resolve(id);
    if (op.is_fake_quantize() && variant.off.contains(op.outputs[0])) {
      stands_for[static_cast<size_t>(op.outputs[0])] = op.inputs[0];
    } else {
      kept.push_back(std::move(op));
    }
  }
  graph.ops = std::move(kept);
  for (int32_t& id : graph.outputs) {
    resolve(id);
    graph.is_output[static_cast<size_t>(id)] = true;
  }
  return graph;
}

size_t shared_ops(const PlanGraph& a, const PlanGraph& b) {
  const size_t most = std::min(a.ops.size(), b.ops.size());
  for (size_t i = 0; i < most; ++i) {
    if (!same_op(a, a.ops[i], b, b.ops[i])) return i;
  }
  return most;
}

}  // namespace kaon
