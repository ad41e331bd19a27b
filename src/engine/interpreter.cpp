#include "engine/interpreter.h"

namespace kaon {

HookTable::HookTable(const Program& program, const Hooks& hooks) : program_(program) {
  for (const Hooks::Entry& entry : hooks.all()) {
    const Edge& edge = entry.edge;
    const int32_t id = program.find_value(edge.value);
    if (id < 0) fail(ErrorCode::InvalidInput, edge.value, "a hook is on this value, which the model does not have");
    if (edge.node.empty()) {
      on_value_[id].push_back(&entry);
      if (entry.hook) replaced_.insert(id);
      continue;
    }
    const auto& steps = program.steps();
    const int64_t node = program.find_step(edge.node);
    const auto input = static_cast<size_t>(edge.input);
    const bool read = node >= 0 && input < steps[static_cast<size_t>(node)].inputs.size() &&
                      steps[static_cast<size_t>(node)].inputs[input] == id;
    if (!read) {
      fail(ErrorCode::InvalidInput, edge.value, "no node that makes '{}' reads this value as its input {}", edge.node,
           edge.input);
    }
    on_edge_[{node, edge.input}].push_back(&entry);
    if (entry.hook) replaced_edges_.insert({node, edge.input});
  }
}

bool HookTable::on_edges_of(int64_t node) const {
  const auto it = on_edge_.lower_bound({node, 0});
  return it != on_edge_.end() && it->first.first == node;
}

bool HookTable::may_replace_edges_of(int64_t node) const {
  const auto it = replaced_edges_.lower_bound({node, 0});
  return it != replaced_edges_.end() && it->first == node;
}

void HookTable::value_made(int32_t id, Value& value) const {
  const auto it = on_value_.find(id);
  if (it != on_value_.end()) apply(it->second, id, value);
}

void HookTable::edge_read(int64_t node, int64_t input, Value& value) const {
  const auto it = on_edge_.find({node, input});
  if (it == on_edge_.end()) return;
  apply(it->second, program_.steps()[static_cast<size_t>(node)].inputs[static_cast<size_t>(input)], value);
}

void HookTable::apply(const std::vector<const Hooks::Entry*>& hooks, int32_t id, Value& value) const {
  if (!value.defined()) return;
  const std::string& name = program_.value_names()[static_cast<size_t>(id)];
  for (const Hooks::Entry* entry : hooks) {
    if (entry->watcher) {
      show(entry->watcher, name, value);
    } else if (entry->tensor_watcher) {
      entry->tensor_watcher({.value = name, .tensor = to_tensor(value)});
    } else if (const std::optional<Tensor> other = entry->hook(name, to_tensor(value))) {
      value = to_value(*other);
    }
  }
}

void check_watchable(const std::string& name, DType type) {
  if (type == DType::Float32) return;
  fail(ErrorCode::InvalidInput, name, "only float32 values can be watched element by element; this one is {}",
       name_of(type));
}

void show(const Watcher& watcher, const std::string& name, const Value& value) {
  check_watchable(name, value.type);
  const at::Tensor flat = value.tensor.contiguous();
  watcher(name, {flat.data_ptr<float>(), static_cast<size_t>(flat.numel())});
}

std::vector<Tensor> interpret(const Program& program, std::vector<Value> table, const Hooks& hooks,
                              const std::set<int32_t>& off) {
  const HookTable hooked(program, hooks);
  for (size_t id = 0; id < table.size(); ++id) hooked.value_made(static_cast<int32_t>(id), table[id]);
  for (size_t i = 0; i < program.steps().size(); ++i) {
    const auto node = static_cast<int64_t>(i);
    InputEdit edit;
    if (hooked.on_edges_of(node)) {
      edit = [&](size_t input, Value& value) { hooked.edge_read(node, static_cast<int64_t>(input), value); };
    }
    const Step& step = program.steps()[i];
    if (!off.empty() && !step.outputs.empty() && off.contains(step.outputs[0])) {
      Value& made = table[static_cast<size_t>(step.outputs[0])] = table[static_cast<size_t>(step.inputs[0])];
      if (edit) edit(0, made);
    } else {
      program.run_step(i, table, edit);
    }
    for (const int32_t id : program.steps()[i].outputs) {
      if (id >= 0) hooked.value_made(id, table[static_cast<size_t>(id)]);
    }
    for (const int32_t id : program.steps()[i].dead) table[static_cast<size_t>(id)] = {};
  }
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < program.outputs().size(); ++i) outputs.push_back(to_tensor(program.output(table, i)));
  return outputs;
}

}  // namespace kaon
