#include "engine/plan/plan.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>

#include "base/parallel_backend.h"
#include "engine/plan/batch.h"
#include "engine/plan/codes.h"

namespace kaon {

namespace {

constexpr size_t kAlignment = 64;
/// So many samples of a batch show whether samples are kept apart.
constexpr int64_t kProbe = 2;
/// A slice of a batch should keep the values that one op reads and writes in the second-level cache.
constexpr int64_t kSliceBytes = 1 << 20;
/// Shapes whose plans are kept; a slice and a batch's rest count for themselves.
constexpr size_t kShapesKept = 16;
/// Variants of a shape whose plans are kept.
constexpr size_t kVariantsKept = 4;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

std::byte* allocate(size_t bytes) {
  return static_cast<std::byte*>(::operator new[](bytes, std::align_val_t(kAlignment)));
}
void release(std::byte* memory) { ::operator delete[](memory, std::align_val_t(kAlignment)); }

}  // namespace

Plan::Plan(Lowered lowered) : lowered_(std::move(lowered)), stream_(dnnl_cpu()), arena_(nullptr, release) {
  const size_t count = lowered_.slots.size();
  runtime_.pointers.resize(count);
  runtime_.values.resize(count);
  runtime_.aliases.resize(count);
  runtime_.stream = &stream_;
  place_slots();
  release_.resize(lowered_.actions.size());
  for (size_t i = 0; i < count; ++i) {
    PlanSlot& slot = lowered_.slots[i];
    const auto root = static_cast<size_t>(slot.root);
    if (slot.kind == PlanSlot::Kind::External) {
      if (root != i) runtime_.aliases[root].push_back(static_cast<int32_t>(i));
      const int64_t last = lowered_.slots[root].last;
      if (last >= 0 && last < std::ssize(release_))
        release_[static_cast<size_t>(last)].push_back(static_cast<int32_t>(i));
    } else if (slot.kind == PlanSlot::Kind::Constant) {
      runtime_.pointers[i] = slot.value.tensor.data_ptr();
      runtime_.values[i] = slot.value;
    } else {
      runtime_.pointers[i] = runtime_.pointers[root];
      if (slot.is_tensor && !lowered_.slots[root].is_result) {
        runtime_.values[i] = {at::from_blob(runtime_.pointers[i], slot.shape, carrier(slot.type)), slot.type};
      }
    }
    runtime_.types.push_back(slot.type);
    runtime_.shapes.push_back(std::move(slot.shape));
  }
  for (const int32_t output : lowered_.outputs) {
    const int32_t root = lowered_.slots[static_cast<size_t>(output)].root;
    if (!lowered_.slots[static_cast<size_t>(root)].is_result) continue;
    Result& result = results_.emplace_back();
    result.output = output;
    for (size_t i = 0; i < count; ++i) {
      if (lowered_.slots[i].root == root) result.slots.push_back(static_cast<int32_t>(i));
    }
  }
  for (const auto& action : lowered_.actions) action->bind(runtime_);
}

void Plan::renew_results() {
  for (const Result& result : results_) {
    const auto output = static_cast<size_t>(result.output);
    const DType type = runtime_.types[output];
    const at::Tensor tensor = at::empty(runtime_.shapes[output], carrier(type));
    runtime_.values[output] = {tensor, type};
    for (const int32_t slot : result.slots) runtime_.pointers[static_cast<size_t>(slot)] = tensor.data_ptr();
  }
}

/// Largest first, each at the lowest address that is free while it lives.
void Plan::place_slots() {
  std::vector<size_t> order;
  for (size_t i = 0; i < lowered_.slots.size(); ++i) {
    const PlanSlot& slot = lowered_.slots[i];
    const bool is_root = slot.root == static_cast<int32_t>(i);
    if (slot.kind == PlanSlot::Kind::Arena && is_root && !slot.is_result) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return lowered_.slots[a].bytes > lowered_.slots[b].bytes; });
  struct Placed {
    size_t offset, bytes;
    int64_t first, last;
  };
  std::vector<Placed> placed;  // by offset
  std::vector<size_t> offsets(lowered_.slots.size());
  size_t total = 0;
  for (const size_t i : order) {
    const PlanSlot& slot = lowered_.slots[i];
    const size_t bytes = aligned(std::max<size_t>(slot.bytes, 1));
    size_t offset = 0;
    for (const Placed& other : placed) {
      if (other.first > slot.last || slot.first > other.last) continue;
      if (offset + bytes <= other.offset) break;
      offset = std::max(offset, other.offset + other.bytes);
    }
    offsets[i] = offset;
    placed.insert(std::ranges::upper_bound(placed, offset, {}, &Placed::offset),
                  {offset, bytes, slot.first, slot.last});
    total = std::max(total, offset + bytes);
  }
  if (total == 0) return;
  arena_.reset(allocate(total));
  runtime_.arena_begin = arena_.get();
  runtime_.arena_end = arena_.get() + total;
  for (const size_t i : order) runtime_.pointers[i] = arena_.get() + offsets[i];
}

std::vector<Value> Plan::run(const std::vector<Value>& inputs) {
  start(inputs);
  execute();
  return outputs();
}

void Plan::start(const std::vector<Value>& inputs) {
  renew_results();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (lowered_.inputs[i] >= 0) runtime_.set(lowered_.inputs[i], {inputs[i].tensor.contiguous(), inputs[i].type});
  }
}

void Plan::resume(const std::byte* live) {
  renew_results();
  for (size_t i = 0; i < lowered_.live_in.size(); ++i) {
    const int32_t slot = lowered_.live_in[i];
    const LiveValue& one = lowered_.part_live[i];
    const auto at = static_cast<size_t>(slot);
    if (one.external) {
      // Nobody writes over External memory.
      auto* bytes = const_cast<std::byte*>(live + one.offset);
      const DType type = runtime_.types[at];
      runtime_.set(slot, {at::from_blob(bytes, runtime_.shapes[at], carrier(type)), type});
    } else {
      std::memcpy(runtime_.pointers[at], live + one.offset, one.bytes);
    }
  }
}

void Plan::execute() {
  for (size_t i = 0; i < lowered_.actions.size(); ++i) {
    adapt_waits();  // one run may take seconds
    lowered_.actions[i]->run(runtime_);
    for (const int32_t slot : release_[i]) runtime_.values[static_cast<size_t>(slot)] = {};
  }
}

std::vector<Value> Plan::outputs() {
  std::vector<Value> outputs;
  for (const int32_t slot : lowered_.outputs) {
    const Value& value = runtime_.values[static_cast<size_t>(slot)];
    const PlanSlot& root = lowered_.slots[static_cast<size_t>(lowered_.slots[static_cast<size_t>(slot)].root)];
    const bool own = root.kind == PlanSlot::Kind::External || root.is_result;
    outputs.push_back({own ? value.tensor : value.tensor.clone(), value.type});
  }
  for (const Result& result : results_) runtime_.values[static_cast<size_t>(result.output)] = {};
  return outputs;
}

void Plan::exchange(const Exchanged& exchanged) {
  for (at::Tensor& owned : lowered_.owners) owned = current(owned, exchanged);
  for (size_t i = 0; i < lowered_.slots.size(); ++i) {
    PlanSlot& slot = lowered_.slots[i];
    if (slot.kind != PlanSlot::Kind::Constant || !exchanged.contains(runtime_.pointers[i])) continue;
    Value& value = runtime_.values[i];
    value.tensor = current(value.tensor, exchanged).view(value.tensor.sizes());
    slot.value = value;
    runtime_.pointers[i] = value.tensor.data_ptr();
  }
  for (const auto& action : lowered_.actions) action->exchange(exchanged);
}

bool Plan::rounds_by_threads() const {
  return std::ranges::any_of(lowered_.actions, [](const auto& action) { return action->rounds_by_threads(); });
}

void Plan::save(std::byte* live) const {
  for (size_t i = 0; i < lowered_.live_out.size(); ++i) {
    const auto slot = static_cast<size_t>(lowered_.live_out_slots[i]);
    const LiveValue& one = lowered_.live_out[i];
    std::memcpy(live + one.offset, runtime_.pointers[slot], one.bytes);
  }
}

namespace {

/// The steps that are left to do, and hooks as ops of their own between a value and its readers.
void add_ops(PlanGraph& graph, const Program& program, const std::vector<bool>& step_is_static, const Hooks& hooks) {
  std::vector<int32_t> current(graph.values.size());  // what readers of a value get
  std::iota(current.begin(), current.end(), 0);
  std::vector<int64_t> hooked_step;  // by hook; -1 where it is on a value
  for (const Hooks::Entry& entry : hooks.all()) {
    hooked_step.push_back(entry.edge.node.empty() ? -1 : program.find_step(entry.edge.node));
  }
  graph.ops.reserve(static_cast<size_t>(std::ranges::count(step_is_static, false)) + hooks.all().size());
  size_t position = 0;
  const auto show = [&](int32_t from, size_t hook, int32_t seen) {
    PlanOp op;
    op.position = position++;
    op.hook = static_cast<int32_t>(hook);
    op.hook_value = seen;
    op.inputs = {from};
    int32_t next = from;
    if (hooks.all()[hook].hook) {
      ValueFacts facts = graph.facts(from);
      facts.is_static = false;
      facts.constant = {};
      next = graph.add_value(std::move(facts));
      op.outputs = {next};
    }
    graph.ops.push_back(std::move(op));
    return next;
  };
  const auto show_value = [&](int32_t id) {
    for (size_t h = 0; h < hooks.all().size(); ++h) {
      const Edge& edge = hooks.all()[h].edge;
      if (edge.node.empty() && program.find_value(edge.value) == id && graph.facts(id).type != DType::Undefined) {
        current[static_cast<size_t>(id)] = show(current[static_cast<size_t>(id)], h, id);
      }
    }
  };
  if (!hooks.empty()) {
    for (const int32_t id : program.inputs()) show_value(id);
    for (const auto& [id, value] : program.constants()) {
      if (std::find(program.inputs().begin(), program.inputs().end(), id) == program.inputs().end()) show_value(id);
    }
  }
  for (size_t i = 0; i < program.steps().size(); ++i) {
    const Step& step = program.steps()[i];
    if (step_is_static[i] && hooks.empty()) continue;
    std::vector<int32_t> inputs;
    inputs.reserve(step.inputs.size());
    for (size_t k = 0; k < step.inputs.size(); ++k) {
      const int32_t id = step.inputs[k];
      int32_t read = id < 0 || graph.facts(id).type == DType::Undefined ? -1 : current[static_cast<size_t>(id)];
      for (size_t h = 0; h < hooks.all().size() && read >= 0; ++h) {
        const bool here = hooked_step[h] == static_cast<int64_t>(i);
        if (here && hooks.all()[h].edge.input == static_cast<int64_t>(k)) read = show(read, h, id);
      }
      inputs.push_back(read);
    }
    if (!step_is_static[i]) {
      PlanOp op;
      op.step = i;
      op.node = &program.graph().nodes[i];
      op.inputs = std::move(inputs);
      op.outputs = step.outputs;
      op.position = position++;
      graph.ops.push_back(std::move(op));
    }
    for (const int32_t id : step.outputs) {
      if (id >= 0 && !hooks.empty()) show_value(id);
    }
  }
  for (const int32_t id : program.outputs()) {
    graph.outputs.push_back(current[static_cast<size_t>(id)]);
    graph.is_output[static_cast<size_t>(graph.outputs.back())] = true;
  }
}

/// Bytes that one sample's largest op reads and writes.
int64_t largest_op(const PlanGraph& graph, int64_t batch) {
  int64_t largest = 1;
  for (const PlanOp& op : graph.ops) {
    int64_t elements = 0;
    for (const Ids* ids : {&op.inputs, &op.outputs}) {
      for (const int32_t id : *ids) {
        if (id >= 0 && !graph.facts(id).is_static) elements += element_count(graph.facts(id).shape);
      }
    }
    largest = std::max(largest, elements / batch * static_cast<int64_t>(sizeof(float)));
  }
  return largest;
}

}  // namespace

std::vector<Value> Plans::inputs_of(const std::vector<Value>& table) const {
  std::vector<Value> inputs;
  for (const int32_t id : program_->inputs()) inputs.push_back(table[static_cast<size_t>(id)]);
  return inputs;
}

std::shared_ptr<const Traced> Plans::traced(std::vector<Value> table, const Hooks& hooks) {
  const HookTable where(*program_, hooks);
  Trace trace;
  try {
    trace = trace_program(*program_, table, where, shared_, /*shapes_only=*/true);
  } catch (const Error&) {  // the zeros may be to blame, as when one divides by them
    trace = trace_program(*program_, std::move(table), where, shared_, /*shapes_only=*/false);
  }
  if (!trace.unplannable.empty()) return nullptr;
  auto made = std::make_shared<Traced>();
  made->graph.values = std::move(trace.values);
  made->graph.traced = std::move(trace.made);
  made->graph.is_output.resize(made->graph.values.size());
  add_ops(made->graph, *program_, trace.step_is_static, hooks);
  join_quantize_pairs(made->graph);
  reserve_codes(made->graph);
  made->step_is_static = std::move(trace.step_is_static);
  return made;
}

std::optional<int64_t> Plans::probe(const std::vector<Value>& table, const Hooks& hooks) {
  try {
    const std::shared_ptr<const Traced> two = traced(samples_of(table, 0, kProbe), hooks);
    if (two == nullptr || !keeps_samples_apart(*program_, two->graph, kProbe)) return std::nullopt;
    return std::max<int64_t>(kSliceBytes / largest_op(two->graph, kProbe), 1);
  } catch (const Error&) {
    return std::nullopt;  // the model may be made for this very batch
  }
}

int64_t Plans::batch_of(const std::vector<Value>& table) const {
  const std::vector<int32_t>& inputs = program_->inputs();
  if (inputs.empty()) return 1;
  const at::Tensor& first = table[static_cast<size_t>(inputs[0])].tensor;
  return !first.defined() || first.dim() == 0 ? 1 : first.size(0);
}

int64_t Plans::slice_for(const std::vector<Value>& table, const Hooks& hooks, int64_t batch) {
  const bool batched = std::ranges::all_of(program_->inputs(), [&](int32_t id) {
    const Value& value = table[static_cast<size_t>(id)];
    return !value.defined() || program_->is_default(id, value) ||
           (value.tensor.dim() > 0 && value.tensor.size(0) == batch);
  });
  if (batch < kProbe || !batched) return batch;
  const Key key = key_of(table, hooks, /*samples=*/true);
  auto known = probes_.find(key);
  if (known == probes_.end()) known = probes_.emplace(key, probe(table, hooks)).first;
  return std::min(known->second.value_or(batch), batch);
}

Plans::Entry Plans::make_entry(std::vector<Value> table, const Hooks& hooks) {
  Entry made;
  const int64_t batch = batch_of(table);
  const int64_t slice = slice_for(table, hooks, batch);
  if (slice < batch) {
    made.slice = slice;
  } else {
    made.traced = traced(std::move(table), hooks);
  }
  return made;
}

Lowering::HookCalls Plans::hook_calls() {
  Lowering::HookCalls calls;
  calls.show = [this](int32_t index, int32_t id, Value& value) {
    const Hook& hook = hooks_->all()[static_cast<size_t>(index)].hook;
    const std::optional<Tensor> other = hook(program_->value_names()[static_cast<size_t>(id)], to_tensor(value));
    if (other) value = to_value(*other);
  };
  calls.watch = [this](int32_t index, int32_t id, std::span<const float> elements) {
    hooks_->all()[static_cast<size_t>(index)].watcher(program_->value_names()[static_cast<size_t>(id)], elements);
  };
  calls.watch_tensor = [this](int32_t index, int32_t id, const Value& value) {
    hooks_->all()[static_cast<size_t>(index)].tensor_watcher(
        {program_->value_names()[static_cast<size_t>(id)], to_tensor(value), slice_first_, slice_count_});
  };
  calls.watch_pixels = [this](int32_t index, int32_t, const Pixels& pixels) {
    hooks_->all()[static_cast<size_t>(index)].tensor_watcher.target<PixelWatcher>()->see(pixels, slice_first_);
  };
  calls.wants_pixels = [this](int32_t index) {
    return hooks_->all()[static_cast<size_t>(index)].tensor_watcher.target<PixelWatcher>() != nullptr;
  };
  calls.wants_tensor = [this](int32_t index) {
    return static_cast<bool>(hooks_->all()[static_cast<size_t>(index)].tensor_watcher);
  };
  return calls;
}

PlanGraph Plans::fused(const Traced& traced, const VariantIds& variant) {
  PlanGraph graph = varied(traced, *program_, variant);
  fuse(graph);
  use_codes(graph, *program_, packed_);
  return graph;
}

std::unique_ptr<Plan> Plans::make_part(PlanGraph fused, const PlanPart& part, DescribedProducts& described) {
  packed_.drop_unused();
  ++made_;
  return std::make_unique<Plan>(Lowering(*program_, std::move(fused), packed_, described, hook_calls()).run(part));
}

Plan& Plans::plan_of(Entry& entry, const VariantIds& variant) {
  const auto known = std::ranges::find_if(entry.plans, [&](const auto& plan) { return plan.first.same_as(variant); });
  if (known != entry.plans.end()) {
    entry.plans.splice(entry.plans.begin(), entry.plans, known);
    return *entry.plans.front().second;
  }
  DescribedProducts described;
  entry.plans.emplace_front(variant, make_part(fused(*entry.traced, variant), {}, described));
  if (entry.plans.size() > kVariantsKept) entry.plans.pop_back();
  return *entry.plans.front().second;
}

bool Plans::exchange(const std::vector<std::pair<int32_t, Tensor>>& weights) {
  if (shared_.constants.empty()) return true;  // nothing was traced yet
  std::map<int32_t, Value> now;
  for (const auto& [id, tensor] : weights) now[id] = to_value(tensor);
  for (const Step& step : program_->steps()) {
    const auto widened = step.widens_weights ? now.find(step.inputs[0]) : now.end();
    if (widened != now.end()) now[step.outputs[0]] = widened->second;
  }
  Exchanged exchanged;
  for (auto& [id, value] : now) {
    const ValueFacts* facts = shared_.constants[static_cast<size_t>(id)].get();
    if (facts == nullptr) continue;
    if (facts->type != value.type && !facts->is_narrow()) value = {value.tensor.to(carrier(facts->type)), facts->type};
    value.tensor = value.tensor.contiguous();
    const auto [known, is_new] = exchanged.emplace(facts->constant.tensor.data_ptr(), value.tensor);
    if (!is_new && known->second.data_ptr() != value.tensor.data_ptr()) return false;  // no longer one tensor
  }
  for (const auto& [id, value] : now) {
    if (ValueFacts* facts = shared_.constants[static_cast<size_t>(id)].get()) facts->constant = value;
  }
  packed_.exchange(exchanged);
  for (auto& [key, entry] : recent_) {
    for (auto& [variant, plan] : entry.plans) plan->exchange(exchanged);
  }
  return true;
}

std::vector<Plans::Slice> Plans::slices(const std::vector<Value>& table) {
  const Hooks none;
  const int64_t batch = batch_of(table);
  const int64_t step = slice_for(table, none, batch);
  std::vector<Slice> slices;
  for (int64_t first = 0; first < batch; first += step) {
    const std::vector<Value> part = step < batch ? samples_of(table, first, std::min(step, batch - first)) : table;
    const std::shared_ptr<const Traced> found = entry(part, none).traced;
    if (found == nullptr) return {};
    slices.push_back({inputs_of(part), found, first});
  }
  return slices;
}

Plans::Key Plans::key_of(const std::vector<Value>& table, const Hooks& hooks, bool samples) const {
  Key key;
  for (const int32_t id : program_->inputs()) {
    const Value& value = table[static_cast<size_t>(id)];
    if (!value.defined() || program_->is_default(id, value)) {
      key.push_back(value.defined() ? -1 : -2);
      continue;
    }
    key.push_back(static_cast<int64_t>(value.type));
    key.push_back(value.tensor.dim());
    key.insert(key.end(), value.tensor.sizes().begin() + (samples ? 1 : 0), value.tensor.sizes().end());
  }
  for (const Hooks::Entry& entry : hooks.all()) {
    const Edge& edge = entry.edge;
    const int64_t node = edge.node.empty() ? -1 : program_->find_value(edge.node);
    const int64_t kind = entry.hook ? 0 : entry.watcher ? 1 : entry.tensor_watcher.target<PixelWatcher>() ? 3 : 2;
    key.insert(key.end(), {kind, program_->find_value(edge.value), node, edge.input});
  }
  return key;
}

Plans::Entry& Plans::entry(const std::vector<Value>& table, const Hooks& hooks) {
  const Key key = key_of(table, hooks);
  const auto known = entries_.find(key);
  if (known != entries_.end()) {
    recent_.splice(recent_.begin(), recent_, known->second);
    return known->second->second;
  }
  Entry made = make_entry(table, hooks);
  recent_.emplace_front(key, std::move(made));
  entries_[key] = recent_.begin();
  if (recent_.size() > kShapesKept) {
    entries_.erase(recent_.back().first);
    recent_.pop_back();
  }
  return recent_.front().second;
}

std::vector<Value> Plans::samples_of(const std::vector<Value>& table, int64_t first, int64_t count) const {
  std::vector<Value> part = table;
  for (const int32_t id : program_->inputs()) {
    Value& value = part[static_cast<size_t>(id)];
    const bool is_default = program_->is_default(id, value);
    if (value.defined() && !is_default) value.tensor = value.tensor.narrow(0, first, count);
  }
  return part;
}

std::vector<Value> Plans::run_slices(const std::vector<Value>& table, const Hooks& hooks, const VariantIds& variant,
                                     int64_t slice) {
  const int64_t batch = batch_of(table);
  std::vector<Value> outputs;
  for (int64_t begin = 0; begin < batch; begin += slice) {
    const int64_t count = std::min(slice, batch - begin);
    const std::vector<Value> part = samples_of(table, begin, count);
    slice_first_ = begin;
    slice_count_ = count;
    const std::vector<Value> results = plan_of(entry(part, hooks), variant).run(inputs_of(part));
    for (size_t i = 0; i < results.size(); ++i) {
      if (outputs.size() <= i) {
        Shape shape(results[i].tensor.sizes().begin(), results[i].tensor.sizes().end());
        shape[0] = batch;
        outputs.push_back({at::empty(shape, results[i].tensor.scalar_type()), results[i].type});
      }
      outputs[i].tensor.narrow(0, begin, count).copy_(results[i].tensor);
    }
  }
  return outputs;
}

std::vector<Value> Plans::run_inputs(std::vector<Value> inputs) {
  constexpr size_t kMostPlans = 8;
  static const Hooks kNone;
  std::vector<Value> table = program_->new_table();
  for (size_t i = 0; i < inputs.size(); ++i) table[static_cast<size_t>(program_->inputs()[i])] = inputs[i];
  if (entries_.size() >= kMostPlans && !entries_.contains(key_of(table, kNone)))
    return program_->run(std::move(inputs));
  Entry& found = entry(table, kNone);
  if (found.slice == 0 && found.traced == nullptr) return program_->run(std::move(inputs));
  hooks_ = &kNone;
  const VariantIds as_it_is(*program_, {});
  return found.slice > 0 ? run_slices(table, kNone, as_it_is, found.slice)
                         : plan_of(found, as_it_is).run(inputs_of(table));
}

std::vector<Tensor> Plans::run(std::vector<Value> table, const Hooks& hooks, const VariantIds& variant) {
  Entry& found = entry(table, hooks);
  if (found.slice == 0 && found.traced == nullptr) {
    for (const auto& [id, value] : variant.constants) table[static_cast<size_t>(id)] = value;
    return interpret(*program_, std::move(table), hooks, variant.off);
  }
  hooks_ = &hooks;
  slice_first_ = slice_count_ = 0;
  const std::vector<Value> outputs =
      found.slice > 0 ? run_slices(table, hooks, variant, found.slice) : plan_of(found, variant).run(inputs_of(table));
  std::vector<Tensor> tensors;
  for (const Value& value : outputs) tensors.push_back(to_tensor(value));
  return tensors;
}

}  // namespace kaon
