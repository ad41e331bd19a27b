#include "engine/plan/lowering.h"

#include <algorithm>
#include <cstring>
#include <ranges>

#include "engine/interpreter.h"
#include "engine/plan/codes.h"
#include "engine/plan/strided_copy.h"

namespace kaon {

namespace {

/// `from`, which speaks of float32, for what `tensor` is stored as.
Desc as_stored(const at::Tensor& tensor, Desc from) {
  if (tensor.scalar_type() == at::kBFloat16) from.data.data_type = dnnl_bf16;
  if (tensor.scalar_type() == at::kHalf) from.data.data_type = dnnl_f16;
  return from;
}

/// Moves `tensor`, which lies as `from` says, to where `to` says. A 16-bit one is widened on the way.
void rearrange(const at::Tensor& tensor, const Desc& from, dnnl::memory& to) {
  const Desc stored = as_stored(tensor, from);
  const Desc wanted = to.get_desc();
  if (stored == wanted) {
    std::memcpy(to.get_data_handle(), tensor.data_ptr(), wanted.get_size());
    return;
  }
  const dnnl::reorder::primitive_desc description(dnnl_cpu(), stored, dnnl_cpu(), wanted);
  // Reference code stands in for instructions that the machine lacks: ATen widens a hundred times faster.
  if (stored.data.data_type != dnnl_f32 && !std::string_view(description.impl_info_str()).starts_with("jit")) {
    return rearrange(tensor.to(at::kFloat), from, to);
  }
  dnnl::memory source(stored, dnnl_cpu(), tensor.data_ptr());
  dnnl::stream stream(dnnl_cpu());
  dnnl::reorder(description).execute(stream, source, to);
  stream.wait();
}

/// The same; where nothing is to be moved, the tensor's own memory.
dnnl::memory rearranged(const at::Tensor& tensor, const Desc& from, const Desc& to) {
  if (as_stored(tensor, from) == to) return {to, dnnl_cpu(), tensor.data_ptr()};
  dnnl::memory moved(to, dnnl_cpu());
  rearrange(tensor, from, moved);
  return moved;
}

}  // namespace

dnnl::memory PackedWeights::pack(const at::Tensor& tensor, const Desc& from, const Desc& to) {
  const auto [first, last] = packed_.equal_range(tensor.data_ptr());
  for (auto it = first; it != last; ++it) {
    if (it->second.from == from && it->second.to == to) return it->second.packed;
  }
  dnnl::memory packed = rearranged(tensor, from, to);
  packed_.emplace(tensor.data_ptr(), Packed{tensor, from, to, packed});
  return packed;
}

std::pair<at::Tensor, at::Tensor> PackedWeights::fold(const at::Tensor& weights, const at::Tensor& bias,
                                                      const at::Tensor& scale, const at::Tensor& shift) {
  const auto same_bias = [&](const at::Tensor& other) {
    return bias.defined() == other.defined() && (!bias.defined() || bias.data_ptr() == other.data_ptr());
  };
  const auto [first, last] = folded_.equal_range(weights.data_ptr());
  for (auto it = first; it != last; ++it) {
    const Folded& known = it->second;
    if (same_bias(known.bias) && at::equal(known.scale, scale) && at::equal(known.shift, shift)) return known.folded;
  }
  std::vector<int64_t> along_outputs(static_cast<size_t>(weights.dim()), 1);
  along_outputs[0] = -1;
  std::pair<at::Tensor, at::Tensor> folded{(weights * scale.reshape(along_outputs)).contiguous(),
                                           bias.defined() ? (bias * scale + shift).contiguous() : shift};
  folded_.emplace(weights.data_ptr(), Folded{weights, bias, scale, shift, folded});
  return folded;
}

at::Tensor PackedWeights::codes(const at::Tensor& weights, const at::Tensor& scales) {
  const auto [first, last] = coded_.equal_range(weights.data_ptr());
  for (auto it = first; it != last; ++it) {
    if (at::equal(it->second.scales, scales)) return it->second.codes;
  }
  std::vector<int64_t> along_outputs(static_cast<size_t>(weights.dim()), 1);
  along_outputs[0] = -1;
  const at::Tensor steps = scales.reshape(along_outputs);
  const at::Tensor whole = (weights / steps).round().clamp(-128, 127);
  const bool are_codes = at::equal(whole * steps, weights);
  at::Tensor codes = are_codes ? whole.to(at::kChar).contiguous() : at::Tensor();
  coded_.emplace(weights.data_ptr(), Coded{weights, scales, codes});
  return codes;
}

void PackedWeights::exchange(const Exchanged& exchanged) {
  std::unordered_multimap<const void*, Packed> known;
  known.swap(packed_);
  for (auto& [where, packed] : known) {
    const bool as_it_lies = packed.packed.get_data_handle() == where;
    if (exchanged.contains(where)) {
      packed.source = exchanged.at(where);
      if (as_it_lies) {
        packed.packed.set_data_handle(packed.source.data_ptr());
      } else {
        rearrange(packed.source, packed.from, packed.packed);
      }
    }
    packed_.emplace(packed.source.data_ptr(), std::move(packed));
  }
}

void PackedWeights::drop_unused() {
  std::erase_if(coded_, [](const auto& entry) { return entry.second.source.use_count() == 1; });
  std::erase_if(folded_, [](const auto& entry) { return entry.second.source.use_count() == 1; });
  std::erase_if(packed_, [](const auto& entry) { return entry.second.source.use_count() == 1; });
}

namespace {

/// Whether an axis of an input, the one of the samples aside, may have any length.
bool takes_any_length(const Program& program) {
  return std::ranges::any_of(program.graph().inputs, [](const ValueInfo& input) {
    return input.shape && std::ranges::any_of(*input.shape | std::views::drop(1),
                                              [](const Dim& dim) { return dim.value.value_or(-1) < 0; });
  });
}

/// Whether keys and values of earlier tokens are given to it.
bool has_past(const Program& program) {
  constexpr size_t kPastKey = 4;
  return std::ranges::any_of(program.graph().nodes, [](const Node& node) {
    return node.domain.empty() && node.op == "Attention" && node.inputs.size() > kPastKey &&
           !node.inputs[kPastKey].empty();
  });
}

}  // namespace

Lowering::Lowering(const Program& program, PlanGraph graph, PackedWeights& packed, DescribedProducts& described,
                   HookCalls hooks)
    : program_(program),
      graph_(std::move(graph)),
      packed_(packed),
      described_(described),
      hooks_(std::move(hooks)),
      any_length_(takes_any_length(program)),
      once_(program.runs() == Runs::Once || has_past(program)),
      states_(graph_.values.size()) {
  constexpr size_t kSlotsPerOp = 2;
  out_.slots.reserve(kSlotsPerOp * graph_.ops.size());
  holders_.reserve(kSlotsPerOp * graph_.ops.size());
  out_.actions.reserve(kSlotsPerOp * graph_.ops.size());
}

Lowered Lowering::run(const PlanPart& part) {
  const size_t last = std::min(part.last, graph_.ops.size());
  std::vector<Ids> reads(graph_.ops.size());
  for (size_t i = part.first; i < graph_.ops.size(); ++i) {
    reads[i] = graph_.ops[i].reads();
    for (const int32_t id : reads[i]) ++state(id).reads_left;
  }
  for (const int32_t id : graph_.outputs) ++state(id).reads_left;
  if (part.first == 0) {
    bring_inputs();
  } else {
    bring_live(part.live);
  }
  for (size_t i = part.first; i < last; ++i) {
    std::erase_if(deferred_, [&](int32_t id) { return !state(id).forms.empty() || state(id).reads_left == 0; });
    out_.cuttable.push_back(deferred_.empty());
    const PlanOp& op = graph_.ops[i];
    const ThreadScope scope(threads_for(op));
    lower(op);
    for (const int32_t id : reads[i]) --state(id).reads_left;
  }
  if (last < graph_.ops.size()) {
    take_live();
    return std::move(out_);
  }
  for (const int32_t id : graph_.outputs) {
    const int32_t slot = request_tensor(id);
    PlanSlot& root = out_.slots[static_cast<size_t>(out_.slots[static_cast<size_t>(slot)].root)];
    // Large outputs that one action makes and none reads need no copy for the caller.
    constexpr size_t kLarge = 1 << 20;
    const size_t bytes =
        static_cast<size_t>(element_count(facts(id).shape)) * c10::elementSize(carrier(facts(id).type));
    root.is_result = root.kind == PlanSlot::Kind::Arena && root.first >= 0 && root.first == root.last &&
                     root.bytes == bytes && bytes >= kLarge;
    touch(slot);
    root.last = INT64_MAX;
    out_.outputs.push_back(slot);
  }
  return std::move(out_);
}

/// For what it is lowered to on oneDNN.
int Lowering::threads_for(const PlanOp& op) const {
  if (op.codes != nullptr && op.codes->kind == CodesOp::Kind::Conv) return op.codes->threads;
  int64_t elements = 0;
  const auto count = [&](int32_t id) { return id < 0 ? 0 : element_count(facts(id).shape); };
  for (const int32_t id : op.inputs) elements += count(id);
  for (const int32_t id : op.outputs) elements += count(id);
  int64_t products = 0;
  if (op.inputs.size() > 1 && op.inputs[1] >= 0) {
    const Shape& x = facts(op.inputs[0]).shape;
    const Shape& weights = facts(op.inputs[1]).shape;
    const int64_t of_one = weights.empty() ? 0 : count(op.inputs[1]) / std::max<int64_t>(weights[0], 1);
    if (op.is("Conv")) products = count(op.outputs[0]) * of_one;
    if (op.is("ConvTranspose")) products = count(op.inputs[0]) * of_one;
    if ((op.is("MatMul") || op.is("Gemm")) && !x.empty()) products = count(op.outputs[0]) * x.back();
  }
  return ThreadScope::worth(products, elements);
}

void Lowering::bring_inputs() {
  for (const int32_t id : program_.inputs()) {
    const bool read = !facts(id).is_static && facts(id).type != DType::Undefined;
    int32_t slot = -1;
    if (read) {
      slot = new_slot(id, static_cast<size_t>(stored_bytes(facts(id).type, element_count(facts(id).shape))),
                      PlanSlot::Kind::External);
      add_plain_form(id, slot);
    }
    out_.inputs.push_back(slot);
  }
}

void Lowering::bring_live(const std::vector<LiveValue>& live) {
  out_.part_live = live;
  for (const LiveValue& one : live) {
    int32_t slot = -1;
    if (one.external) {
      slot = new_slot(one.value, one.bytes, PlanSlot::Kind::External);
      add_form(one.value, one.desc, slot);
    } else {
      slot = is_float(one.value) ? define(one.value, one.desc) : define_plain(one.value);
      touch(slot);
    }
    out_.live_in.push_back(slot);
  }
}

bool Lowering::is_alive(int32_t id) const {
  const ValueState& value = states_[static_cast<size_t>(id)];
  return !facts(id).is_static && value.reads_left > 0 && (!value.forms.empty() || value.pending);
}

void Lowering::take_live() {
  constexpr size_t kAlignment = 64;
  size_t offset = 0;
  for (int32_t id = 0; id < static_cast<int32_t>(states_.size()); ++id) {
    if (!is_alive(id)) continue;
    const Form form = first_form(id);
    touch(form.slot);
    PlanSlot& root = out_.slots[static_cast<size_t>(out_.slots[static_cast<size_t>(form.slot)].root)];
    root.last = INT64_MAX;
    const size_t bytes =
        is_float(id) ? form.desc.get_size()
                     : static_cast<size_t>(element_count(facts(id).shape)) * c10::elementSize(carrier(facts(id).type));
    out_.live_out.push_back({id, form.desc, root.kind == PlanSlot::Kind::External, offset, bytes});
    out_.live_out_slots.push_back(form.slot);
    offset += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
}

const std::unordered_map<std::string_view, Lowering::Rule>& Lowering::rules() {
  static const std::unordered_map<std::string_view, Rule> kRules = [] {
    std::unordered_map<std::string_view, Rule> rules{
        {"Conv", &Lowering::lower_conv},
        {"ConvTranspose", &Lowering::lower_conv_transpose},
        {"MatMul", &Lowering::lower_matmul},
        {"Gemm", &Lowering::lower_gemm},
        {"MaxPool", &Lowering::lower_pool},
        {"AveragePool", &Lowering::lower_pool},
        {"GlobalAveragePool", &Lowering::lower_global_pool},
        {"BatchNormalization", &Lowering::lower_batch_norm},
        {"Softmax", &Lowering::lower_softmax},
        {"Attention", &Lowering::lower_attention},
        {"RotaryEmbedding", &Lowering::lower_rotary_embedding},
        {"RMSNormalization", &Lowering::lower_row_norm},
        {"LayerNormalization", &Lowering::lower_row_norm},
        {"Concat", &Lowering::lower_concat},
        {"Gather", &Lowering::lower_gather},
    };
    for (const char* op : {"Relu", "LeakyRelu", "Sigmoid", "Tanh", "Exp", "Clip", "HardSwish", "HardSigmoid", "Elu",
                           "Erf", "Neg", "Sqrt", "Reciprocal", "Abs", "Floor", "Ceil", "Pow"}) {
      rules.emplace(op, &Lowering::lower_eltwise);
    }
    for (const char* op : {"Add", "Sub", "Mul", "Div", "Min", "Max"}) rules.emplace(op, &Lowering::lower_binary);
    for (const char* op : {"ReduceMean", "ReduceSum", "ReduceMax"}) rules.emplace(op, &Lowering::lower_reduce);
    for (const char* op : {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout"}) {
      rules.emplace(op, &Lowering::lower_view);
    }
    for (const char* op : {"Transpose", "Slice", "Pad", "Expand", "Tile", "Split", "DepthToSpace", "SpaceToDepth"}) {
      rules.emplace(op, &Lowering::lower_movement);
    }
    return rules;
  }();
  return kRules;
}

void Lowering::lower(const PlanOp& op) {
  if (op.is_watcher()) return lower_watcher(op);
  if (op.hook >= 0) return lower_hook(op);
  if (op.codes) return lower_codes(op);
  const auto is_empty = [&](int32_t id) { return id >= 0 && element_count(facts(id).shape) == 0; };
  if (std::ranges::any_of(op.outputs, is_empty)) return lower_aten(op, op.outputs);
  if (op.quantizer) return lower_add_quantize(op);
  if (op.is_fake_quantize() && lower_fake_quantize(op)) return;
  // Sums over nothing are left to ATen; attention may have no past.
  const size_t counted = op.is("Attention") ? 4 : op.inputs.size();
  const bool has_data =
      !op.inputs.empty() && op.inputs[0] >= 0 && std::ranges::none_of(op.inputs | std::views::take(counted), is_empty);
  if (op.node->domain.empty() && has_data) {
    const auto rule = rules().find(op.node->op);
    if (rule != rules().end() && (this->*rule->second)(op)) return;
  }
  if (op.post.empty() && op.fold_scale < 0) return lower_aten(op, op.outputs);
  // The kernel knows nothing of what was fused into the op: do that afterwards, in place on a copy.
  const int32_t value = op.outputs[0];
  const int32_t raw = graph_.add_value(facts(value));
  states_.emplace_back();
  lower_aten(op, {raw});
  const Desc desc = plain_desc(facts(value).shape);
  const int32_t slot = define(value, desc);
  reorder(request(raw, desc), desc, slot, desc);
  post_ops_apart(op, value, false);
}

int32_t Lowering::new_slot(int32_t value, size_t bytes, PlanSlot::Kind kind) {
  PlanSlot slot;
  slot.kind = kind;
  slot.bytes = bytes;
  slot.root = static_cast<int32_t>(out_.slots.size());
  slot.shape = facts(value).shape;
  slot.type = facts(value).type;
  out_.slots.push_back(std::move(slot));
  holders_.push_back({value});
  return out_.slots.back().root;
}

int32_t Lowering::scratch_slot(size_t bytes) {
  PlanSlot slot;
  slot.bytes = bytes;
  slot.root = static_cast<int32_t>(out_.slots.size());
  out_.slots.push_back(std::move(slot));
  holders_.emplace_back();
  return out_.slots.back().root;
}

int32_t Lowering::alias_slot(int32_t value, int32_t other) {
  PlanSlot slot = out_.slots[static_cast<size_t>(other)];
  slot.shape = facts(value).shape;
  slot.first = slot.last = -1;
  slot.is_tensor = false;
  holders_[static_cast<size_t>(slot.root)].push_back(value);
  holders_.emplace_back();
  if (slot.value.defined()) slot.value.tensor = slot.value.tensor.view(slot.shape);
  out_.slots.push_back(std::move(slot));
  return static_cast<int32_t>(out_.slots.size()) - 1;
}

void Lowering::add_form(int32_t value, const Desc& desc, int32_t slot) {
  state(value).forms.push_back({desc, slot, is_float(value) && is_plain(desc, facts(value).shape)});
}

void Lowering::add_plain_form(int32_t value, int32_t slot) {
  const bool plain = is_float(value);  // others have no layout
  state(value).forms.push_back({plain ? plain_desc(facts(value).shape) : Desc(), slot, plain});
}

int32_t Lowering::define(int32_t value, const Desc& desc) {
  const int32_t slot = new_slot(value, desc.get_size(), PlanSlot::Kind::Arena);
  add_form(value, desc, slot);
  return slot;
}

int32_t Lowering::define_plain(int32_t value) {
  const int32_t slot = new_slot(
      value, static_cast<size_t>(element_count(facts(value).shape)) * c10::elementSize(carrier(facts(value).type)),
      PlanSlot::Kind::Arena);
  add_plain_form(value, slot);
  return slot;
}

const Lowering::Form& Lowering::first_form(int32_t value) {
  if (state(value).forms.empty()) request_plain(value);
  return state(value).forms.front();
}

const Lowering::Form* Lowering::find_form(int32_t value, const Desc& desc) {
  for (const Form& form : state(value).forms) {
    if (form.desc == desc) return &form;
  }
  return nullptr;
}

int32_t Lowering::add_constant(const at::Tensor& tensor) {
  states_.emplace_back();
  return graph_.add_constant(tensor);
}

dnnl::memory Lowering::packed(const at::Tensor& tensor, const Desc& from, const Desc& to) {
  out_.owners.push_back(tensor);
  return packed_.pack(tensor, from, to);
}

dnnl::memory Lowering::constant_memory(const at::Tensor& tensor, const Desc& desc) {
  const Shape shape(tensor.sizes().begin(), tensor.sizes().end());
  return packed(tensor, plain_desc(shape), desc);
}

int32_t Lowering::constant_slot(int32_t value, const Desc& desc) {
  const bool plain = is_plain(desc, facts(value).shape);
  const Shape shape = plain ? facts(value).shape : Shape{static_cast<int64_t>(desc.get_size() / sizeof(float))};
  const dnnl::memory memory = constant_memory(facts(value).constant.tensor, desc);
  const int32_t slot = new_slot(value, desc.get_size(), PlanSlot::Kind::Constant);
  out_.constants.push_back(memory);
  out_.slots[static_cast<size_t>(slot)].value = {at::from_blob(memory.get_data_handle(), shape, at::kFloat),
                                                 DType::Float32};
  return slot;
}

int32_t Lowering::request(int32_t value, const Desc& desc) {
  if (const Form* form = find_form(value, desc)) return form->slot;
  if (facts(value).is_static) {
    const int32_t slot = constant_slot(value, desc);
    add_form(value, desc, slot);
    return slot;
  }
  if (state(value).forms.empty()) {
    materialise(value, desc);
    return state(value).forms.back().slot;
  }
  const Form from = state(value).forms.front();
  const int32_t slot = define(value, desc);
  reorder(from.slot, from.desc, slot, desc);
  return slot;
}

int32_t Lowering::request_plain(int32_t value) {
  for (const Form& form : state(value).forms) {
    if (form.is_plain) return form.slot;
  }
  if (facts(value).is_static) {
    if (!state(value).forms.empty() && !is_float(value)) return state(value).forms.front().slot;
    const Desc desc = is_float(value) ? plain_desc(facts(value).shape) : Desc();
    int32_t slot = -1;
    if (facts(value).is_narrow()) {
      slot = constant_slot(value, desc);
    } else {
      slot = new_slot(value, 0, PlanSlot::Kind::Constant);
      out_.slots[static_cast<size_t>(slot)].value = facts(value).constant;
    }
    state(value).forms.insert(state(value).forms.begin(), {desc, slot, is_float(value)});
    return slot;
  }
  if (is_float(value)) return request(value, plain_desc(facts(value).shape));
  return state(value).forms.front().slot;
}

int32_t Lowering::request_tensor(int32_t value) {
  const int32_t slot = request_plain(value);
  out_.slots[static_cast<size_t>(slot)].is_tensor = true;
  return slot;
}

void Lowering::defer(int32_t value, Pending pending) {
  const int32_t root = out_.slots[static_cast<size_t>(first_form(pending.source).slot)].root;
  holders_[static_cast<size_t>(root)].push_back(value);
  state(value).pending = std::move(pending);
  deferred_.push_back(value);
}

void Lowering::materialise(int32_t value, const Desc& desc) {
  if (!state(value).pending) fail(ErrorCode::Internal, "plan", "a value is read before it is made");
  const Pending pending = *state(value).pending;
  const Form from = first_form(pending.source);
  const bool row_major = from.is_plain && is_plain(desc, facts(value).shape);
  const int32_t slot = define(value, desc);
  if (row_major && is_strided(pending.map)) {
    emit(std::make_unique<StridedCopyAction>(from.slot, slot, pending.map.sizes(), pending.map.strides(),
                                             pending.map.storage_offset()),
         {from.slot}, {slot});
  } else {
    const at::Tensor flat = pending.map.contiguous();
    const std::span origins(flat.data_ptr<int32_t>(), static_cast<size_t>(flat.numel()));
    std::vector<int32_t> map(row_major ? origins.size() : static_cast<size_t>(element_capacity(desc)), -1);
    const Offsets from_offsets(from.desc);
    const Offsets to_offsets(desc);
    for (size_t i = 0; i < origins.size(); ++i) {
      const int32_t source = origins[i] - 1;
      if (row_major) {
        map[i] = source;
      } else if (source >= 0) {
        map[static_cast<size_t>(to_offsets.of(static_cast<int64_t>(i)))] =
            static_cast<int32_t>(from_offsets.of(source));
      }
    }
    emit(std::make_unique<ShuffleAction>(from.slot, slot, std::move(map)), {from.slot}, {slot});
  }
  for (const auto& quantizer : pending.quantizers) emit_quantize({.quantizer = quantizer}, desc, slot, slot);
}

bool Lowering::may_overwrite(int32_t slot, const PlanOp& op) const {
  const int32_t root = out_.slots[static_cast<size_t>(slot)].root;
  if (out_.slots[static_cast<size_t>(root)].kind != PlanSlot::Kind::Arena) return false;
  const auto reads = [&](int32_t id) {
    return std::find(op.inputs.begin(), op.inputs.end(), id) != op.inputs.end() ||
           std::any_of(op.post.begin(), op.post.end(), [&](const PostOp& post) { return post.operand == id; });
  };
  const std::vector<int32_t>& held = holders_[static_cast<size_t>(root)];
  return std::all_of(held.begin(), held.end(),
                     [&](int32_t id) { return states_[static_cast<size_t>(id)].reads_left == (reads(id) ? 1 : 0); });
}

void Lowering::touch(int32_t slot) {
  PlanSlot& root = out_.slots[static_cast<size_t>(out_.slots[static_cast<size_t>(slot)].root)];
  const auto now = static_cast<int64_t>(out_.actions.size());
  if (root.first < 0) root.first = now;
  root.last = std::max(root.last, now);
}

void Lowering::emit(std::unique_ptr<Action> action, std::initializer_list<int32_t> reads,
                    std::initializer_list<int32_t> writes) {
  for (const int32_t slot : reads) touch(slot);
  for (const int32_t slot : writes) touch(slot);
  if (const size_t bytes = action->scratch_bytes(); bytes > 0) {
    const int32_t slot = scratch_slot(bytes);
    touch(slot);
    action->use_scratch(slot);
  }
  out_.actions.push_back(std::move(action));
}

void Lowering::reorder(int32_t from, const Desc& from_desc, int32_t to, const Desc& to_desc) {
  auto action = std::make_unique<DnnlAction>(dnnl::reorder({dnnl_cpu(), from_desc, dnnl_cpu(), to_desc, plan_attr()}));
  action->slot(DNNL_ARG_FROM, from_desc, from);
  action->slot(DNNL_ARG_TO, to_desc, to);
  emit(std::move(action), {from}, {to});
}

void Lowering::lower_aten(const PlanOp& op, const Ids& outputs) {
  std::vector<int32_t> reads, writes;
  for (const int32_t id : op.inputs)
    reads.push_back(id < 0 || facts(id).type == DType::Undefined ? -1 : request_tensor(id));
  for (const int32_t slot : reads) {
    if (slot >= 0) touch(slot);
  }
  for (const int32_t id : outputs) {
    if (id < 0 || facts(id).type == DType::Undefined) {
      writes.push_back(-1);
      continue;
    }
    const int32_t slot = new_slot(id, 0, PlanSlot::Kind::External);
    add_plain_form(id, slot);
    touch(slot);
    writes.push_back(slot);
  }
  emit(std::make_unique<AtenAction>(program_.steps()[op.step].kernel, *op.node, reads, writes), {}, {});
}

void Lowering::lower_hook(const PlanOp& op) {
  const int32_t in = request_tensor(op.inputs[0]);
  const int32_t value = op.outputs[0];
  int32_t out = -1;
  if (may_overwrite(in, op)) {
    out = alias_slot(value, in);
    add_plain_form(value, out);
  } else {
    out = define_plain(value);
  }
  const auto bytes = static_cast<int64_t>(element_count(facts(value).shape) *
                                          static_cast<int64_t>(c10::elementSize(carrier(facts(value).type))));
  emit(std::make_unique<HookAction>(
           [show = hooks_.show, hook = op.hook, id = op.hook_value](Value& shown) { show(hook, id, shown); }, in, out,
           bytes, program_.value_names()[static_cast<size_t>(op.hook_value)]),
       {in}, {out});
}

namespace {

/// How a value lies in this layout; nothing where Pixels cannot say it.
std::optional<Pixels> pixels_in(const Desc& desc, const Shape& shape) {
  const dnnl_memory_desc_t& d = desc.data;
  const auto& blocking = d.format_desc.blocking;
  if (d.ndims != std::ssize(shape) || d.format_kind != dnnl_blocked || blocking.inner_nblks > 1) return std::nullopt;
  const bool blocked = blocking.inner_nblks == 1;
  if (blocked && blocking.inner_idxs[0] != 1) return std::nullopt;
  Pixels pixels{.data = nullptr, .shape = shape};
  pixels.sample_stride = blocking.strides[0];
  pixels.block_stride = blocking.strides[1];
  pixels.position_stride = blocking.strides[d.ndims - 1];
  for (int axis = d.ndims - 1; axis > 2; --axis) {
    if (blocking.strides[axis - 1] != blocking.strides[axis] * d.dims[axis]) return std::nullopt;
  }
  if (blocked) {
    pixels.block = blocking.inner_blks[0];
  } else if (pixels.block_stride == 1) {
    pixels.block = std::max<int64_t>(shape[1], 1);
  }
  return pixels;
}

}  // namespace

void Lowering::lower_pixel_watcher(const PlanOp& op) {
  const int32_t value = op.inputs[0];
  const Shape& shape = facts(value).shape;
  check_watchable(program_.value_names()[static_cast<size_t>(op.hook_value)], facts(value).type);
  int32_t in = -1;
  std::optional<Pixels> pixels;
  for (const Form& form : state(value).forms) {
    pixels = pixels_in(form.desc, shape);
    in = form.slot;
    if (pixels) break;
  }
  if (!pixels) {
    pixels = Pixels::row_major(nullptr, shape);
    in = request_plain(value);
  }
  const auto show = [watch = hooks_.watch_pixels, hook = op.hook, id = op.hook_value](const Pixels& shown) {
    watch(hook, id, shown);
  };
  emit(std::make_unique<WatchPixelsAction>(show, in, std::move(*pixels)), {in}, {});
}

void Lowering::lower_watcher(const PlanOp& op) {
  const int32_t value = op.inputs[0];
  if (hooks_.wants_pixels(op.hook) && facts(value).shape.size() > 2) return lower_pixel_watcher(op);
  if (hooks_.wants_tensor(op.hook)) {
    const int32_t in = request_tensor(value);
    const auto show = [watch = hooks_.watch_tensor, hook = op.hook, id = op.hook_value](const Value& shown) {
      watch(hook, id, shown);
    };
    emit(std::make_unique<WatchTensorAction>(show, in), {in}, {});
    return;
  }
  const std::string& name = program_.value_names()[static_cast<size_t>(op.hook_value)];
  check_watchable(name, facts(value).type);
  const int64_t count = element_count(facts(value).shape);
  const std::vector<Form>& forms = state(value).forms;
  const auto bare =
      std::find_if(forms.begin(), forms.end(), [&](const Form& form) { return element_capacity(form.desc) == count; });
  const int32_t in = bare != forms.end() ? bare->slot : request_plain(value);
  const auto show = [watch = hooks_.watch, hook = op.hook, id = op.hook_value](std::span<const float> elements) {
    watch(hook, id, elements);
  };
  emit(std::make_unique<WatchAction>(show, in, count), {in}, {});
}

}  // namespace kaon
