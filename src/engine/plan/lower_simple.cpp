// Pooling, normalisation, pointwise work, reductions and rearrangements.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/arith.h"
#include "engine/plan/attention.h"
#include "engine/plan/lowering.h"

namespace kaon {

using dnnl::algorithm;

dnnl::eltwise_forward::primitive_desc eltwise_desc(const PostOp& step, const Desc& desc) {
  return {
      {dnnl::prop_kind::forward_inference, step.algorithm, desc, step.alpha, step.beta}, plan_attr(), dnnl_cpu(), true};
}

void Lowering::emit_eltwise(const PostOp& step, const Desc& desc, int32_t in, int32_t out) {
  auto action = std::make_unique<DnnlAction>(dnnl::eltwise_forward(eltwise_desc(step, desc)));
  action->slot(DNNL_ARG_SRC, desc, in);
  action->slot(DNNL_ARG_DST, desc, out);
  emit(std::move(action), {in}, {out});
}

bool Lowering::emit_pool(const PlanOp& op, algorithm kind, const SlidingWindow& window) {
  const int32_t x = op.inputs[0];
  const int32_t y = op.outputs[0];
  const Desc source = first_form(x).desc;
  const dnnl::pooling_forward::primitive_desc description(
      {dnnl::prop_kind::forward_inference, kind, source, any_layout(facts(y).shape), window.strides, window.kernel,
       window.begin, window.end},
      plan_attr(), dnnl_cpu(), true);
  if (!is_fast(description)) return false;
  const int32_t in = request(x, source);
  const int32_t out = define(y, description.dst_desc());
  auto action = std::make_unique<DnnlAction>(dnnl::pooling_forward(description));
  action->slot(DNNL_ARG_SRC, source, in);
  action->slot(DNNL_ARG_DST, description.dst_desc(), out);
  emit(std::move(action), {in}, {out});
  return true;
}

bool Lowering::lower_pool(const PlanOp& op) {
  const Node& node = *op.node;
  if (!is_float(op.inputs[0]) || op.outputs.size() != 1) return false;
  const Shape x_shape = facts(op.inputs[0]).shape;
  const Shape y_shape = facts(op.outputs[0]).shape;
  if (x_shape.size() < 3 || x_shape.size() > 5) return false;
  SlidingWindow window = slide(window_attributes(node), x_shape, node.get_ints("kernel_shape"));
  const bool maximum = op.is("MaxPool");
  for (size_t i = 0; i < window.kernel.size(); ++i) {
    if (window.dilations[i] != 1 || window.begin[i] >= window.kernel[i]) return false;
    const int64_t end = (y_shape[i + 2] - 1) * window.strides[i] + window.kernel[i] - x_shape[i + 2] - window.begin[i];
    if (!maximum && end > window.end[i]) return false;  // ceil mode counts the overhang in its own way
    if (end >= window.kernel[i]) return false;
    window.end[i] = std::max<int64_t>(end, 0);
  }
  const bool include_pad = node.get_int("count_include_pad", 0) != 0;
  return emit_pool(op,
                   maximum       ? algorithm::pooling_max
                   : include_pad ? algorithm::pooling_avg_include_padding
                                 : algorithm::pooling_avg_exclude_padding,
                   window);
}

bool Lowering::lower_global_pool(const PlanOp& op) {
  const Shape& x_shape = facts(op.inputs[0]).shape;
  if (!is_float(op.inputs[0]) || x_shape.size() < 3 || x_shape.size() > 5) return false;
  SlidingWindow window;
  window.kernel.assign(x_shape.begin() + 2, x_shape.end());
  window.strides = window.dilations = Shape(window.kernel.size(), 1);
  window.begin = window.end = Shape(window.kernel.size(), 0);
  return emit_pool(op, algorithm::pooling_avg_exclude_padding, window);
}

bool Lowering::lower_batch_norm(const PlanOp& op) {
  const int32_t x = op.inputs[0];
  const int32_t y = op.outputs[0];
  if (op.inputs.size() != 5 || op.outputs.size() != 1 || !is_float(x) || op.node->get_int("training_mode", 0) != 0)
    return false;
  const Shape& shape = facts(x).shape;
  if (shape.size() < 3 || shape.size() > 5) return false;
  for (size_t i = 1; i < 5; ++i) {
    if (!is_static_float(op.inputs[i])) return false;
  }
  const Desc desc = first_form(x).desc;
  const dnnl::batch_normalization_forward::primitive_desc description(
      {dnnl::prop_kind::forward_inference, desc, op.node->get_float("epsilon", 1e-5F),
       dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift |
           dnnl::normalization_flags::use_global_stats},
      plan_attr(), dnnl_cpu(), true);
  if (!is_fast(description)) return false;
  const int32_t in = request(x, desc);
  const int32_t out = reuse_or_define(op, in, y, desc);
  auto action = std::make_unique<DnnlAction>(dnnl::batch_normalization_forward(description));
  const Desc parameter = plain_desc({shape[1]});
  const auto fixed = [&](int argument, size_t input) {
    action->fixed(argument, packed(facts(op.inputs[input]).constant.tensor, parameter, parameter));
  };
  fixed(DNNL_ARG_SCALE, 1);
  fixed(DNNL_ARG_SHIFT, 2);
  fixed(DNNL_ARG_MEAN, 3);
  fixed(DNNL_ARG_VARIANCE, 4);
  action->slot(DNNL_ARG_SRC, desc, in);
  action->slot(DNNL_ARG_DST, desc, out);
  emit(std::move(action), {in}, {out});
  return true;
}

bool Lowering::lower_softmax(const PlanOp& op) {
  const int32_t x = op.inputs[0];
  const int32_t y = op.outputs[0];
  if (!is_float(x)) return false;
  const size_t rank = facts(x).shape.size();
  const bool old = program_.model().opset() < 13;
  const int64_t axis = wrap_axis(op.node->get_int("axis", old ? 1 : -1), std::ssize(facts(x).shape));
  // Before opset 13 the softmax ran over everything from the axis on.
  if (rank == 0 || (old && axis != static_cast<int64_t>(rank) - 1)) return false;
  const Desc desc = plain_desc(facts(x).shape);
  // oneDNN would make a kernel for every length.
  if (any_length_ && axis == static_cast<int64_t>(rank) - 1) {
    const int32_t in = request(x, desc);
    const int32_t out = reuse_or_define(op, in, y, desc);
    const int64_t columns = facts(x).shape.back();
    emit(std::make_unique<SoftmaxRowsAction>(in, out, element_count(facts(x).shape) / columns, columns), {in}, {out});
    return true;
  }
  const dnnl::softmax_forward::primitive_desc description(
      {dnnl::prop_kind::forward_inference, desc, static_cast<int>(axis)}, plan_attr(), dnnl_cpu(), true);
  if (!is_fast(description)) return false;
  const int32_t in = request(x, desc);
  const int32_t out = reuse_or_define(op, in, y, desc);
  auto action = std::make_unique<DnnlAction>(dnnl::softmax_forward(description));
  action->slot(DNNL_ARG_SRC, desc, in);
  action->slot(DNNL_ARG_DST, desc, out);
  emit(std::move(action), {in}, {out});
  return true;
}

/// The input's own memory when nobody reads it after `op`, else a new slot.
int32_t Lowering::reuse_or_define(const PlanOp& op, int32_t in, int32_t value, const Desc& desc) {
  if (!may_overwrite(in, op)) return define(value, desc);
  const int32_t slot = alias_slot(value, in);
  add_form(value, desc, slot);
  return slot;
}

bool Lowering::lower_eltwise(const PlanOp& op) {
  const int32_t x = op.inputs[0];
  const int32_t y = op.outputs[0];
  if (!is_float(x) || !is_float(y)) return false;
  const Node& node = *op.node;
  const auto simple = [&](UnaryKind kind) {
    const Desc desc = plain_desc(facts(x).shape);
    const int32_t in = request(x, desc);
    const int32_t out = reuse_or_define(op, in, y, desc);
    emit(std::make_unique<UnaryAction>(kind, in, out, element_count(facts(x).shape)), {in}, {out});
    return true;
  };
  const auto primitive = [&](std::initializer_list<PostOp> chain) {
    if (facts(x).shape.size() > 5) return false;
    const auto fast = [&](const Desc& desc) {
      return std::ranges::all_of(chain, [&](const PostOp& one) { return is_fast(eltwise_desc(one, desc)); });
    };
    Form form = first_form(x);
    if (!fast(form.desc)) form = {plain_desc(facts(x).shape), request_plain(x)};
    if (!fast(form.desc)) return false;
    int32_t in = form.slot;
    const int32_t out = reuse_or_define(op, in, y, form.desc);
    for (const PostOp& one : chain) {
      emit_eltwise(one, form.desc, in, out);
      in = out;
    }
    return true;
  };
  if (op.is("Neg")) return simple(UnaryKind::Neg);
  if (op.is("Sqrt")) return simple(UnaryKind::Sqrt);
  if (op.is("Reciprocal")) return simple(UnaryKind::Reciprocal);
  if (op.is("Abs")) return simple(UnaryKind::Abs);
  if (op.is("Floor")) return simple(UnaryKind::Floor);
  if (op.is("Ceil")) return simple(UnaryKind::Ceil);
  if (op.is("Pow")) {
    const std::optional<float> exponent = graph_.scalar(op.inputs[1]);
    if (facts(y).shape != facts(x).shape || !exponent) return false;
    return *exponent == 2 ? simple(UnaryKind::Square) : *exponent == 0.5F ? simple(UnaryKind::Sqrt) : false;
  }
  if (op.is("Relu")) return primitive({{algorithm::eltwise_relu, 0, 0}});
  if (op.is("LeakyRelu")) return primitive({{algorithm::eltwise_relu, node.get_float("alpha", 0.01F), 0}});
  if (op.is("Sigmoid")) return primitive({{algorithm::eltwise_logistic, 0, 0}});
  if (op.is("Tanh")) return primitive({{algorithm::eltwise_tanh, 0, 0}});
  if (op.is("Exp")) return primitive({{algorithm::eltwise_exp, 0, 0}});
  if (op.is("Elu")) return primitive({{algorithm::eltwise_elu, node.get_float("alpha", 1), 0}});
  if (op.is("HardSwish")) return primitive({{algorithm::eltwise_hardswish, 0, 0}});
  if (op.is("HardSigmoid")) {
    return primitive({{algorithm::eltwise_linear, node.get_float("alpha", 0.2F), node.get_float("beta", 0.5F)},
                      {algorithm::eltwise_clip, 0, 1}});
  }
  if (op.is("Clip")) {
    const auto bounds = clip_bounds(graph_, op);
    return bounds && primitive({{algorithm::eltwise_clip, bounds->first, bounds->second}});
  }
  return false;
}

bool Lowering::lower_binary(const PlanOp& op) {
  if (op.inputs.size() != 2) return false;
  const int32_t a = op.inputs[0];
  const int32_t b = op.inputs[1];
  const int32_t y = op.outputs[0];
  if (!is_float(a) || !is_float(b)) return false;
  // Before opset 7 the shapes were aligned by an attribute.
  if (op.node->find("axis") != nullptr || op.node->find("broadcast") != nullptr) return false;
  static const std::unordered_map<std::string_view, std::pair<BinaryKind, algorithm>> kKinds{
      {"Add", {BinaryKind::Add, algorithm::binary_add}}, {"Sub", {BinaryKind::Sub, algorithm::binary_sub}},
      {"Mul", {BinaryKind::Mul, algorithm::binary_mul}}, {"Div", {BinaryKind::Div, algorithm::binary_div}},
      {"Min", {BinaryKind::Min, algorithm::binary_min}}, {"Max", {BinaryKind::Max, algorithm::binary_max}}};
  const auto [kind, dnnl_kind] = kKinds.at(op.node->op);
  const Shape& a_shape = facts(a).shape;
  const Shape& b_shape = facts(b).shape;
  const Shape& y_shape = facts(y).shape;
  const auto is_blocked = [&](int32_t id) { return !facts(id).is_static && !first_form(id).is_plain; };
  // A blocked operand keeps its layout through sums and products; oneDNN broadcasts the second operand.
  if (a_shape.size() == y_shape.size() && b_shape.size() == y_shape.size() && y_shape.size() <= 5 &&
      (is_blocked(a) || is_blocked(b)) && op.node->op != "Min" && op.node->op != "Max") {
    const bool commutes = op.is("Add") || op.is("Mul");
    const bool swapped = commutes && (a_shape != y_shape || (!is_blocked(a) && b_shape == y_shape));
    const int32_t first = swapped ? b : a;
    const int32_t second = swapped ? a : b;
    if (facts(first).shape == y_shape && !facts(first).is_static) {
      const Form form = first_form(first);
      const Desc second_desc = facts(second).shape == y_shape ? form.desc : plain_desc(facts(second).shape);
      const dnnl::binary::primitive_desc description({dnnl_kind, form.desc, second_desc, form.desc}, plan_attr(),
                                                     dnnl_cpu(), true);
      if (is_fast(description)) {
        const int32_t other = request(second, second_desc);
        const int32_t out = reuse_or_define(op, form.slot, y, form.desc);
        auto action = std::make_unique<DnnlAction>(dnnl::binary(description));
        action->slot(DNNL_ARG_SRC_0, form.desc, form.slot);
        action->slot(DNNL_ARG_SRC_1, second_desc, other);
        action->slot(DNNL_ARG_DST, form.desc, out);
        emit(std::move(action), {form.slot, other}, {out});
        return true;
      }
    }
  }
  const int32_t left = request_plain(a);
  const int32_t right = request_plain(b);
  const Desc desc = plain_desc(y_shape);
  const bool over_left = a_shape == y_shape && may_overwrite(left, op);
  const bool over_right = !over_left && b_shape == y_shape && may_overwrite(right, op);
  const int32_t out = over_left    ? reuse_or_define(op, left, y, desc)
                      : over_right ? reuse_or_define(op, right, y, desc)
                                   : define(y, desc);
  emit(std::make_unique<BinaryAction>(kind, left, a_shape, right, b_shape, out, y_shape), {left, right}, {out});
  return true;
}

bool Lowering::lower_reduce(const PlanOp& op) {
  const int32_t x = op.inputs[0];
  const int32_t y = op.outputs[0];
  if (!is_float(x)) return false;
  const Shape shape = facts(x).shape;
  Shape axes = op.node->get_ints("axes");
  if (op.inputs.size() > 1 && op.inputs[1] >= 0) axes = to_tensor(facts(op.inputs[1]).constant).to_int64();
  if (axes.empty()) return false;
  for (int64_t& axis : axes) axis = wrap_axis(axis, std::ssize(shape));
  std::sort(axes.begin(), axes.end());
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] != static_cast<int64_t>(shape.size() - axes.size() + i)) return false;  // not the trailing ones
  }
  const int64_t inner = element_count(std::span(shape).last(axes.size()));
  const int64_t outer = element_count(std::span(shape).first(shape.size() - axes.size()));
  // From opset 18 on the attribute means nothing.
  if (element_count(facts(y).shape) != outer) return false;
  const bool spatial_mean = op.is("ReduceMean") && shape.size() >= 3 && shape.size() <= 5 &&
                            axes.size() == shape.size() - 2 && facts(y).shape.size() == shape.size();
  // Row-major rows of numbers are not worth a primitive for every length.
  const bool rows = shape.size() == 3 && first_form(x).is_plain;
  if (spatial_mean && !rows) return lower_global_pool(op);
  const int32_t in = request_plain(x);
  const int32_t out = define_plain(y);
  const ReduceKind kind = op.is("ReduceMean")  ? ReduceKind::Mean
                          : op.is("ReduceSum") ? ReduceKind::Sum
                                               : ReduceKind::Max;
  emit(std::make_unique<ReduceAction>(kind, in, out, outer, inner), {in}, {out});
  return true;
}

bool Lowering::lower_concat(const PlanOp& op) {
  const int32_t y = op.outputs[0];
  if (!is_float(y)) return false;
  const Shape y_shape = facts(y).shape;
  const auto axis = static_cast<size_t>(wrap_axis(op.node->get_int("axis", 1), std::ssize(y_shape)));
  std::vector<int32_t> parts;
  bool blocked = false;
  for (const int32_t id : op.inputs) {
    if (element_count(facts(id).shape) == 0) continue;
    parts.push_back(id);
    blocked |= !facts(id).is_static && !state(id).forms.empty() && !first_form(id).is_plain;
  }
  if (blocked) {
    std::vector<Desc> sources;
    for (const int32_t id : parts)
      sources.push_back(facts(id).is_static ? plain_desc(facts(id).shape) : first_form(id).desc);
    const dnnl::concat::primitive_desc description(any_layout(y_shape), static_cast<int>(axis), sources, dnnl_cpu(),
                                                   plan_attr());
    auto action = std::make_unique<DnnlAction>(dnnl::concat(description));
    const int32_t out = define(y, description.dst_desc());
    action->slot(DNNL_ARG_DST, description.dst_desc(), out);
    std::vector<int32_t> read;
    for (size_t i = 0; i < parts.size(); ++i) {
      read.push_back(request(parts[i], sources[i]));
      action->slot(DNNL_ARG_MULTIPLE_SRC + static_cast<int>(i), sources[i], read.back());
    }
    for (const int32_t slot : read) touch(slot);
    emit(std::move(action), {}, {out});
    return true;
  }
  std::vector<std::pair<int32_t, int64_t>> rows;
  for (const int32_t id : parts) {
    const int64_t elements = element_count(std::span(facts(id).shape).subspan(axis));
    rows.emplace_back(request_plain(id), elements * static_cast<int64_t>(sizeof(float)));
  }
  const int32_t out = define_plain(y);
  for (const auto& [slot, bytes] : rows) touch(slot);
  emit(std::make_unique<ConcatAction>(std::move(rows), out, element_count(std::span(y_shape).first(axis))), {}, {out});
  return true;
}

bool Lowering::lower_view(const PlanOp& op) {
  const int32_t x = op.inputs[0];
  const int32_t y = op.outputs[0];
  if (op.outputs.size() > 1 && op.outputs[1] >= 0) return false;
  share_memory(x, y);
  return true;
}

/// `view` has the elements of `value`, in their order.
void Lowering::share_memory(int32_t value, int32_t view) {
  if (is_float(value) && state(value).forms.empty() && state(value).pending) {
    Pending pending = *state(value).pending;
    const Shape& shape = facts(view).shape;
    // Where no strides tell the new axes apart, the finer ones stay.
    if (at::detail::computeStride(pending.map.sizes(), pending.map.strides(), shape)) {
      pending.map = pending.map.view(shape);
    }
    return defer(view, std::move(pending));
  }
  const int32_t slot = alias_slot(view, request_plain(value));
  add_plain_form(view, slot);
}

/// Whether two rearrangements of values of one shape do the same.
bool Lowering::moves_alike(const PlanOp& a, const PlanOp& b) const {
  if (a.node->op != b.node->op || a.inputs.size() != b.inputs.size() || a.outputs.size() != b.outputs.size() ||
      facts(a.inputs[0]).shape != facts(b.inputs[0]).shape) {
    return false;
  }
  for (size_t i = 1; i < a.inputs.size(); ++i) {
    if ((a.inputs[i] < 0) != (b.inputs[i] < 0)) return false;
    if (a.inputs[i] >= 0 && !same_bytes(facts(a.inputs[i]).constant, facts(b.inputs[i]).constant)) return false;
  }
  const auto same = []<typename T>(const Attribute& x, const Attribute& y, const T*) {
    const auto* left = std::get_if<T>(&x.value);
    const auto* right = std::get_if<T>(&y.value);
    return left != nullptr && right != nullptr && *left == *right;
  };
  return std::ranges::equal(a.node->attributes, b.node->attributes, [&](const Attribute& x, const Attribute& y) {
    constexpr const int64_t* kInt = nullptr;
    constexpr const std::vector<int64_t>* kInts = nullptr;
    constexpr const std::string* kString = nullptr;
    return x.name == y.name && (same(x, y, kInt) || same(x, y, kInts) || same(x, y, kString));
  });
}

Lowering::Map Lowering::counting(const Shape& shape) {
  const int64_t count = element_count(shape);
  if (countings_.empty() || countings_.back().numel() < count) {
    countings_.push_back(at::arange(1, count + 1, at::kInt));
  }
  return countings_.back().narrow(0, 0, count).view(shape);
}

bool Lowering::is_strided(const Map& map) const {
  return std::ranges::any_of(countings_, [&](const at::Tensor& counting) { return map.is_alias_of(counting); });
}

namespace {

/// Whether two maps are the same view of the same numbers, and so the same.
bool same_view(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return a.is_alias_of(b) && a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() &&
         a.strides() == b.strides();
}

}  // namespace

Lowering::Map Lowering::reshaped(const Map& map, const Shape& shape) {
  if (map.sizes() == shape) return map;
  for (const auto& [from, to] : reshaped_) {
    if (to.sizes() == shape && same_view(from, map)) return to;
  }
  return reshaped_.emplace_back(map, map.reshape(shape)).second;
}

/// The map of a value of this shape with its axes in another order; nothing where the map's axes cut across them.
std::optional<Lowering::Map> Lowering::transposed(const Map& map, const Shape& shape,
                                                  const std::vector<int64_t>& order) {
  std::vector<std::vector<int64_t>> finer(shape.size());
  int64_t axis = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    int64_t extent = 1;
    while (axis < map.dim() && extent < shape[i]) {
      extent *= map.size(axis);
      finer[i].push_back(axis++);
    }
    if (extent != shape[i]) return std::nullopt;
  }
  for (; axis < map.dim(); ++axis) finer.back().push_back(axis);  // of one element each
  std::vector<int64_t> axes;
  for (const int64_t from : order) {
    const std::vector<int64_t>& group = finer[static_cast<size_t>(from)];
    axes.insert(axes.end(), group.begin(), group.end());
  }
  return map.permute(axes);
}

/// Runs the node's own kernel on the numbers 1, 2, 3 …: they tell where every element came from.
std::vector<Lowering::Map> Lowering::movement(const PlanOp& op, const Map& through) {
  for (const Movement& known : movements_) {
    if (same_view(known.through, through) && moves_alike(*known.op, op)) return known.maps;
  }
  Value counted{through.defined() ? through : counting(facts(op.inputs[0]).shape), DType::Int32};
  if (op.is("Pad")) counted = {counted.tensor.to(at::kDouble), DType::Float64};  // ATen mirrors floats only
  std::vector<const Value*> inputs{&counted};
  for (size_t i = 1; i < op.inputs.size(); ++i) {
    inputs.push_back(op.inputs[i] < 0 ? nullptr : &facts(op.inputs[i]).constant);
  }
  std::vector<Value> outputs(op.outputs.size());
  Call call(inputs, outputs);
  run_kernel(program_.steps()[op.step].kernel, call, *op.node);
  std::vector<Map> maps;
  for (const Value& output : outputs) maps.push_back(output.tensor.to(at::kInt));
  movements_.push_back({&op, through, maps});
  return maps;
}

bool Lowering::lower_movement(const PlanOp& op) {
  const int32_t x = op.inputs[0];
  if (!is_float(x) || element_count(facts(x).shape) >= INT32_MAX) return false;
  if (op.is("Pad")) {
    if (op.node->get_string("mode", "constant") == "constant") {
      const bool given = op.inputs.size() > 2 && op.inputs[2] >= 0;
      if (given ? graph_.scalar(op.inputs[2]) != 0.0F : op.node->get_float("value", 0) != 0) return false;
    }
  }
  for (size_t i = 1; i < op.inputs.size(); ++i) {
    if (op.inputs[i] >= 0 && !facts(op.inputs[i]).is_static) return false;
  }
  Pending pending{x, {}};
  if (state(x).forms.empty() && state(x).pending) pending = *state(x).pending;
  if (pending.map.defined() && pending.map.sizes() != facts(x).shape) {
    const std::vector<int64_t> order = op.node->get_ints("perm");
    if (op.is("Transpose") && !order.empty()) {
      if (const std::optional<Map> turned = transposed(pending.map, facts(x).shape, order)) {
        defer(op.outputs[0], {pending.source, *turned, pending.quantizers});
        return true;
      }
    }
    pending.map = reshaped(pending.map, facts(x).shape);
  }
  const std::vector<Map> maps = movement(op, pending.map);
  for (size_t k = 0; k < maps.size(); ++k) {
    if (op.outputs[k] >= 0) defer(op.outputs[k], {pending.source, maps[k], pending.quantizers});
  }
  return true;
}

bool Lowering::lower_gather(const PlanOp& op) {
  const int32_t table = op.inputs[0];
  const int32_t indices = op.inputs[1];
  if (!is_float(table)) return false;
  if (facts(indices).is_static && !facts(table).is_static) return lower_movement(op);
  const Shape& shape = facts(table).shape;
  const DType type = facts(indices).type;
  if (shape.empty() || wrap_axis(op.node->get_int("axis", 0), std::ssize(shape)) != 0 ||
      (type != DType::Int64 && type != DType::Int32))
    return false;
  const int32_t in = request_plain(table);
  const int32_t which = request_plain(indices);
  const int32_t out = define_plain(op.outputs[0]);
  const int64_t row = element_count(std::span(shape).subspan(1)) * static_cast<int64_t>(sizeof(float));
  emit(std::make_unique<GatherRowsAction>(in, which, type, out, shape[0], element_count(facts(indices).shape), row,
                                          op.node->label()),
       {in, which}, {out});
  return true;
}

}  // namespace kaon
