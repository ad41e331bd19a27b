// Convolutions and matrix products on oneDNN, with what was fused into them as post-ops.
#include <algorithm>
#include <string_view>

#include "engine/plan/lowering.h"
#include "engine/plan/row_product.h"
#include "engine/plan/small_product.h"

namespace kaon {

namespace {

using dnnl::memory;

bool is_eltwise(dnnl::algorithm algorithm) {
  return algorithm != dnnl::algorithm::binary_add && algorithm != dnnl::algorithm::binary_mul;
}

/// `shape` with leading ones up to `rank`.
Shape padded_rank(const Shape& shape, size_t rank) {
  Shape padded(rank - std::min(rank, shape.size()), 1);
  padded.insert(padded.end(), shape.begin(), shape.end());
  return padded;
}

/// Below so many multiplications, oneDNN takes longer to make its fastest kernel than all runs of a short-lived plan
/// gain by it.
constexpr int64_t kWorthAKernel = 4'000'000;
/// The general kernel is as fast as one of their own for sums of so many terms and so many columns; below, it is not.
constexpr int64_t kTerms = 32;
constexpr int64_t kColumns = 16;

/// The implementation that works for any sizes without a kernel of its own, where there is one; else the fastest.
dnnl::matmul::primitive_desc without_own_kernel(const dnnl::matmul::desc& form, const dnnl::primitive_attr& attr) {
  dnnl::matmul::primitive_desc description(form, attr, dnnl_cpu(), true);
  if (description.get(true) == nullptr) return description;
  do {
    if (std::string_view(description.impl_info_str()).starts_with("gemm")) return description;
  } while (description.next_impl());
  return {form, attr, dnnl_cpu(), true};
}

/// A row-major matrix of any number of rows.
Desc open_rows(int64_t columns) {
  return {{DNNL_RUNTIME_DIM_VAL, columns}, memory::data_type::f32, memory::dims{columns, 1}};
}

constexpr size_t kKeyBytes = 512;  ///< more than most keys have

/// Adds numbers to a key.
template <typename T>
void append(std::string& key, const T& number) {
  static_assert(std::is_trivially_copyable_v<T>);
  key.append(reinterpret_cast<const char*>(&number), sizeof(T));
}
void append(std::string& key, const Shape& shape) {
  append(key, shape.size());
  for (const int64_t extent : shape) append(key, extent);
}
void append(std::string& key, const Desc& desc) {
  const dnnl_memory_desc_t& data = desc.data;
  const bool blocked = data.format_kind == dnnl_blocked;
  if (data.extra.flags != 0 || (!blocked && data.format_kind != dnnl_format_kind_any)) return append(key, data);
  const auto add = [&](const dnnl_dim_t* numbers, int count) {
    key.append(reinterpret_cast<const char*>(numbers), static_cast<size_t>(count) * sizeof(dnnl_dim_t));
  };
  append(key, data.ndims);
  append(key, data.data_type);
  append(key, data.format_kind);
  add(data.dims, data.ndims);
  if (!blocked) return;
  const dnnl_blocking_desc_t& blocking = data.format_desc.blocking;
  append(key, blocking.inner_nblks);
  append(key, data.offset0);
  add(data.padded_dims, data.ndims);
  add(data.padded_offsets, data.ndims);
  add(blocking.strides, data.ndims);
  add(blocking.inner_blks, blocking.inner_nblks);
  add(blocking.inner_idxs, blocking.inner_nblks);
}

/// A constant's shape as a post-op wants it: the rank of `dims`, which may have merged leading axes.
Shape operand_dims(const Shape& operand, const Shape& dims) {
  if (element_count(operand) == element_count(dims)) return dims;
  Shape inner = operand;
  while (inner.size() > dims.size() && inner.front() == 1) inner.erase(inner.begin());
  return padded_rank(inner, dims.size());
}

}  // namespace

/// The slot of `value` in `desc`, which may describe a row-major value under merged axes.
int32_t Lowering::request_as(int32_t value, const Desc& desc) {
  return desc.dims() == facts(value).shape ? request(value, desc) : request_plain(value);
}

int32_t Lowering::define_as(int32_t value, const Desc& desc) {
  return desc.dims() == facts(value).shape ? define(value, desc) : define_plain(value);
}

/// A residual operand that dies here and may therefore be accumulated into, as `destination`; -1 when there is none.
int32_t Lowering::sum_candidate(const PlanOp& op, const Desc& destination) {
  for (const PostOp& post : op.post) {
    if (post.algorithm != dnnl::algorithm::binary_add || facts(post.operand).is_static) continue;
    if (state(post.operand).reads_left != 1) return -1;
    if (std::find(op.inputs.begin(), op.inputs.end(), post.operand) != op.inputs.end()) return -1;
    const bool merged_axes = destination.dims() != facts(post.operand).shape;
    const Form* form = find_form(post.operand, merged_axes ? plain_desc(facts(post.operand).shape) : destination);
    if (form == nullptr) return post.operand;  // a copy in that layout will be its own
    const std::vector<int32_t>& held = holders_[static_cast<size_t>(out_.slots[static_cast<size_t>(form->slot)].root)];
    const bool also_input = std::any_of(op.inputs.begin(), op.inputs.end(), [&](int32_t id) {
      return std::find(held.begin(), held.end(), id) != held.end();
    });
    return !also_input && may_overwrite(form->slot, op) ? post.operand : -1;
  }
  return -1;
}

/// Post-ops for a result laid out as `destination`; the value `sum` is accumulated into, others are read.
Lowering::PostPlan Lowering::post_plan(const PlanOp& op, const Desc& destination, int32_t sum) const {
  PostPlan plan;
  const Shape dims = destination.dims();
  for (size_t i = 0; i < op.post.size(); ++i) {
    const PostOp& post = op.post[i];
    append(plan.key, post.algorithm);
    append(plan.key, post.operand == sum);
    if (is_eltwise(post.algorithm)) {
      append(plan.key, post.alpha);
      append(plan.key, post.beta);
    } else if (post.operand != sum) {
      const ValueFacts& operand = facts(post.operand);
      const Desc desc = operand.is_static ? plain_desc(operand_dims(operand.shape, dims)) : destination;
      const int argument = DNNL_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(i)) | DNNL_ARG_SRC_1;
      plan.operands.push_back({argument, post.operand, desc});
      append(plan.key, desc);
    }
  }
  return plan;
}

/// What oneDNN is told of a post_plan().
dnnl::primitive_attr Lowering::post_attr(const PlanOp& op, const PostPlan& plan, int32_t sum) {
  dnnl::post_ops posts;
  auto operand = plan.operands.begin();
  for (const PostOp& post : op.post) {
    if (is_eltwise(post.algorithm)) {
      posts.append_eltwise(1, post.algorithm, post.alpha, post.beta);
    } else if (post.operand == sum) {
      posts.append_sum();
    } else {
      posts.append_binary(post.algorithm, (operand++)->desc);
    }
  }
  dnnl::primitive_attr attr = plan_attr();
  attr.set_post_ops(posts);
  return attr;
}

/// The batch norm (unless it is `folded` into the weights already) and the post-ops as steps of their own, in place on
/// the only form of `value`: in its layout where oneDNN has fast primitives for all of them, else row-major.
void Lowering::post_ops_apart(const PlanOp& op, int32_t value, bool folded) {
  std::vector<PostOp> steps = op.post;
  if (op.fold_scale >= 0 && !folded) {
    Shape along_channels(facts(value).shape.size(), 1);
    along_channels[1] = -1;
    const auto channels = [&](int32_t id) { return add_constant(facts(id).constant.tensor.reshape(along_channels)); };
    steps.insert(steps.begin(), {{dnnl::algorithm::binary_mul, 0, 0, channels(op.fold_scale)},
                                 {dnnl::algorithm::binary_add, 0, 0, channels(op.fold_shift)}});
  }
  const Shape dims = facts(value).shape;
  const auto operand_desc = [&](int32_t operand, const Desc& desc) {
    return facts(operand).shape == dims ? desc : plain_desc(operand_dims(facts(operand).shape, dims));
  };
  const auto binary = [&](const PostOp& step, const Desc& desc) {
    return dnnl::binary::primitive_desc({step.algorithm, desc, operand_desc(step.operand, desc), desc}, plan_attr(),
                                        dnnl_cpu(), true);
  };
  Form form = state(value).forms.front();
  const Desc plain = plain_desc(dims);
  // oneDNN would make a kernel for every length.
  const bool own = any_length_ && form.is_plain;
  const bool fast = !own && std::ranges::all_of(steps, [&](const PostOp& step) {
    return is_eltwise(step.algorithm) ? is_fast(eltwise_desc(step, form.desc)) : is_fast(binary(step, form.desc));
  });
  if (!fast && !form.is_plain) {
    const Form before = form;
    state(value).forms.clear();
    form = {plain, define(value, plain), true};
    reorder(before.slot, before.desc, form.slot, plain);
  }
  for (const PostOp& step : steps) {
    if (is_eltwise(step.algorithm)) {
      emit_eltwise(step, form.desc, form.slot, form.slot);
      continue;
    }
    if (!fast) {
      const int32_t other = request_plain(step.operand);
      const BinaryKind kind = step.algorithm == dnnl::algorithm::binary_add ? BinaryKind::Add : BinaryKind::Mul;
      emit(std::make_unique<BinaryAction>(kind, form.slot, dims, other, operand_dims(facts(step.operand).shape, dims),
                                          form.slot, dims),
           {form.slot, other}, {form.slot});
      continue;
    }
    const Desc other_desc = operand_desc(step.operand, form.desc);
    const int32_t other = request_as(step.operand, other_desc);
    auto action = std::make_unique<DnnlAction>(dnnl::binary(binary(step, form.desc)));
    action->slot(DNNL_ARG_SRC_0, form.desc, form.slot);
    action->slot(DNNL_ARG_SRC_1, other_desc, other);
    action->slot(DNNL_ARG_DST, form.desc, form.slot);
    emit(std::move(action), {form.slot, other}, {form.slot});
  }
}

std::shared_ptr<Described> Lowering::described(const Product& product, const Desc& destination, const PostPlan& posts,
                                               const std::function<dnnl::primitive_attr()>& attr) {
  std::string key = product.key;
  append(key, ThreadScope::current());
  if (!product.open_rows) append(key, destination);
  key += posts.key;
  // An operand of a post-op has a number of rows.
  const bool any_rows = product.open_rows && posts.operands.empty();
  std::shared_ptr<Described>& known = (any_rows ? packed_.of_any_rows : described_)[key];
  if (known == nullptr || product.key.empty()) {
    known = std::make_shared<Described>();
    known->description = product.describe(destination, attr());
    known->is_fast = is_fast(known->description);
  }
  return known;
}

bool Lowering::emit_product(const PlanOp& op, const Product& product) {
  const int32_t y = op.outputs[0];
  const std::shared_ptr<Described> bare = described(product, product.destination, {}, plan_attr);
  if (!bare->is_fast) return false;
  const Desc natural = product.open_rows ? product.destination : Desc(bare->description.query_md(dnnl::query::dst_md));
  bool apart = false;
  int32_t sum = sum_candidate(op, natural);
  PostPlan posts;
  std::shared_ptr<Described> made = bare;
  const auto try_with = [&](int32_t sum_value) {
    posts = post_plan(op, natural, sum_value);
    const auto attr = [&] { return post_attr(op, posts, sum_value); };
    made = described(product, natural, posts, std::ref(attr));
    return made->is_fast;
  };
  if (sum >= 0 && !try_with(sum)) sum = -1;
  if (sum < 0 && !op.post.empty() && !try_with(-1)) {
    apart = true;
    posts = {};
    made = bare;
  }

  const dnnl::primitive_desc& chosen = made->description;
  if (!made->primitive) made->primitive = dnnl::primitive(chosen);
  auto action = std::make_unique<DnnlAction>(made->primitive);
  std::vector<int32_t> read;
  const Desc source_desc = product.open_rows ? product.source_desc : Desc(chosen.query_md(dnnl::query::src_md));
  read.push_back(request_as(product.source, source_desc));
  action->slot(DNNL_ARG_SRC, source_desc, read.back());
  const Desc weights_desc = chosen.query_md(dnnl::query::weights_md);
  if (product.weights.defined()) {
    action->fixed(DNNL_ARG_WEIGHTS, packed(product.weights, product.weights_desc, weights_desc));
  } else {
    read.push_back(request_as(product.weights_value, weights_desc));
    action->slot(DNNL_ARG_WEIGHTS, weights_desc, read.back());
  }
  if (product.bias.defined()) {
    const Desc bias_desc = chosen.query_md(dnnl::query::weights_md, 1);
    action->fixed(DNNL_ARG_BIAS, packed(product.bias, bias_desc, bias_desc));
  }
  for (const PostPlan::Operand& operand : posts.operands) {
    if (facts(operand.value).is_static) {
      action->fixed(operand.argument, packed(facts(operand.value).constant.tensor, operand.desc, operand.desc));
    } else {
      read.push_back(request_as(operand.value, operand.desc));
      action->slot(operand.argument, operand.desc, read.back());
    }
  }
  int32_t result = -1;
  if (sum >= 0) {
    result = alias_slot(y, request_as(sum, natural));
    add_form(y, natural.dims() == facts(y).shape ? natural : plain_desc(facts(y).shape), result);
  } else {
    result = define_as(y, natural);
  }
  action->slot(DNNL_ARG_DST, natural, result);
  for (const int32_t slot : read) touch(slot);
  emit(std::move(action), {}, {result});
  if (apart) post_ops_apart(op, y, true);
  return true;
}

/// `weights` with the groups as an axis in front, where there are several.
Lowering::Describe Lowering::convolution(const Shape& x, const Shape& weights, bool with_bias,
                                         const ConvolutionWindow& window) {
  const int64_t outputs = weights.size() > x.size() ? weights[0] * weights[1] : weights[0];
  const Desc bias = with_bias ? plain_desc({outputs}) : Desc();
  return [=](const Desc& destination, const dnnl::primitive_attr& attr) -> dnnl::primitive_desc {
    constexpr auto kKind = dnnl::prop_kind::forward_inference;
    constexpr auto kDirect = dnnl::algorithm::convolution_direct;
    const auto form =
        bias.is_zero()
            ? dnnl::convolution_forward::desc(kKind, kDirect, any_layout(x), any_layout(weights), destination,
                                              window.strides, window.dilations, window.begin, window.end)
            : dnnl::convolution_forward::desc(kKind, kDirect, any_layout(x), any_layout(weights), bias, destination,
                                              window.strides, window.dilations, window.begin, window.end);
    return dnnl::convolution_forward::primitive_desc(form, attr, dnnl_cpu(), true);
  };
}

/// The value under another shape of as many elements; both are views of one memory.
int32_t Lowering::view_of(int32_t value, Shape shape) {
  ValueFacts facts = this->facts(value);
  facts.shape = std::move(shape);
  const int32_t view = graph_.add_value(std::move(facts));
  states_.emplace_back();
  share_memory(value, view);
  return view;
}

/// oneDNN's kernels work along the last axis: where that is a single column, the rows take its place.
bool Lowering::lower_column_conv(const PlanOp& op, const SlidingWindow& window) {
  const Shape x_shape = facts(op.inputs[0]).shape;
  const Shape y_shape = facts(op.outputs[0]).shape;
  const Shape w_shape = facts(op.inputs[1]).shape;
  const auto is_residual = [&](const PostOp& post) { return post.operand >= 0 && !facts(post.operand).is_static; };
  if (x_shape.size() != 4 || x_shape[3] != 1 || w_shape[3] != 1 || y_shape[3] != 1 || x_shape[2] == 1) return false;
  if (window.begin[1] != 0 || window.end[1] != 0 || std::ranges::any_of(op.post, is_residual)) return false;
  const auto turned = [](const Shape& shape) { return Shape{shape[0], shape[1], 1, shape[2]}; };
  PlanOp row = op;
  Node node = *op.node;
  const auto swap = [&](const char* attribute, const Shape& values) {
    node.set(attribute, std::vector<int64_t>(values.begin(), values.end()));
  };
  swap("kernel_shape", {1, w_shape[2]});
  swap("strides", {1, window.strides[0]});
  swap("dilations", {1, window.dilations[0]});
  swap("pads", {0, window.begin[0], 0, window.end[0]});
  node.set("auto_pad", std::string("NOTSET"));
  graph_.made.push_back(std::make_shared<const Node>(std::move(node)));
  row.node = graph_.made.back().get();
  row.inputs[0] = view_of(op.inputs[0], turned(x_shape));
  row.inputs[1] = add_constant(facts(op.inputs[1]).constant.tensor.reshape(turned(w_shape)));
  ValueFacts facts = this->facts(op.outputs[0]);
  facts.shape = turned(y_shape);
  row.outputs = {graph_.add_value(std::move(facts))};
  states_.emplace_back();
  if (!lower_conv(row)) return false;
  share_memory(row.outputs[0], op.outputs[0]);
  return true;
}

bool Lowering::lower_conv(const PlanOp& op) {
  const int32_t x = op.inputs[0];
  const int32_t w = op.inputs[1];
  const int32_t b = op.inputs.size() > 2 ? op.inputs[2] : -1;
  if (!is_float(x) || !is_static_float(w) || (b >= 0 && !is_static_float(b))) return false;
  const Shape x_shape = facts(x).shape;
  const Shape w_shape = facts(w).shape;
  if (x_shape.size() < 3 || x_shape.size() > 5) return false;
  const SlidingWindow window = slide(window_attributes(*op.node), x_shape, {w_shape.begin() + 2, w_shape.end()});
  if (lower_column_conv(op, window)) return true;
  const int64_t groups = op.node->get_int("group", 1);

  Product product;
  product.source = x;
  product.weights = facts(w).constant.tensor;
  if (b >= 0) product.bias = facts(b).constant.tensor;
  if (op.fold_scale >= 0) {
    std::tie(product.weights, product.bias) = packed_.fold(
        product.weights, product.bias, facts(op.fold_scale).constant.tensor, facts(op.fold_shift).constant.tensor);
  }
  Shape grouped = w_shape;
  if (groups > 1) {
    grouped[0] /= groups;
    grouped.insert(grouped.begin(), groups);
  }
  product.weights_desc = plain_desc(grouped);
  product.destination = any_layout(facts(op.outputs[0]).shape);
  Shape dilations = window.dilations;
  for (int64_t& dilation : dilations) --dilation;
  product.describe =
      convolution(x_shape, grouped, product.bias.defined(), {window.strides, dilations, window.begin, window.end});
  product.key = "convolution";
  for (const Shape& one : {x_shape, grouped, window.strides, dilations, window.begin, window.end}) {
    append(product.key, one);
  }
  append(product.key, product.bias.defined());
  return emit_product(op, product);
}

/// The many small products of attention, where lengths change; false when `op` is something else.
bool Lowering::emit_small_products(const PlanOp& op, int32_t a, const Shape& a_dims, int32_t b, const Shape& b_dims,
                                   const Shape& y_dims) {
  const size_t rank = y_dims.size();
  const int64_t m = a_dims[rank - 2];
  const int64_t k = a_dims[rank - 1];
  const int64_t n = y_dims[rank - 1];
  const auto is_linear = [](const PostOp& post) { return post.algorithm == dnnl::algorithm::eltwise_linear; };
  if (rank < 3 || facts(b).is_static || (k >= kTerms && n >= kColumns) || !std::ranges::all_of(op.post, is_linear)) {
    return false;
  }
  const auto begin_of = [&](const Shape& dims, int64_t product) {
    int64_t at = 0;
    int64_t stride = dims[rank - 2] * dims[rank - 1];
    for (size_t axis = rank - 2; axis-- > 0; product /= y_dims[axis]) {
      if (dims[axis] != 1) at += product % y_dims[axis] * stride;
      stride *= dims[axis];
    }
    return at;
  };
  std::vector<std::pair<int64_t, int64_t>> offsets(static_cast<size_t>(element_count(y_dims) / (m * n)));
  for (size_t i = 0; i < offsets.size(); ++i) {
    const auto product = static_cast<int64_t>(i);
    offsets[i] = {begin_of(a_dims, product), begin_of(b_dims, product)};
  }
  const int32_t left = request_plain(a);
  const int32_t right = request_plain(b);
  touch(left);
  touch(right);
  const int32_t out = define_plain(op.outputs[0]);
  auto action =
      std::make_unique<SmallProductsAction>(left, right, out, SmallProductsAction::Sizes{m, n, k}, std::move(offsets));
  for (const PostOp& post : op.post) action->then(post.alpha, post.beta);
  emit(std::move(action), {left, right}, {out});
  return true;
}

/// How many of the first post-ops oneDNN's general kernel does well: element-wise ones, and a sum into the result.
size_t Lowering::general_posts(const PlanOp& op, const Desc& destination) {
  const int32_t sum = sum_candidate(op, destination);
  const auto other = std::ranges::find_if(
      op.post, [&](const PostOp& post) { return !is_eltwise(post.algorithm) && (sum < 0 || post.operand != sum); });
  return static_cast<size_t>(other - op.post.begin());
}

/// A 16-bit constant matrix that lies as `desc` says, widened at every run, in memory that others use as well.
int32_t Lowering::widened_once(int32_t weights, const Desc& desc) {
  ValueFacts wide;
  wide.shape = desc.dims();
  wide.type = DType::Float32;
  const int32_t value = graph_.add_value(std::move(wide));
  states_.emplace_back();
  const int32_t slot = define(value, desc);
  emit(std::make_unique<WidenAction>(facts(weights).constant.tensor, slot), {}, {slot});
  return value;
}

/// a [M, K] times b [K, N], with a bias of N; `weights_strides` says how b lies in memory.
bool Lowering::emit_matmul(const PlanOp& op, int32_t a, const Shape& a_dims, int32_t b, const Desc& b_desc,
                           const at::Tensor& bias, const Shape& y_dims) {
  // A row of its own comes again and again, as texts grow by a token: no copy of the weights is worth making for it.
  // A few are done like that before oneDNN has made its general kernel.
  constexpr int64_t kFewRows = 8;
  if (any_length_ && facts(b).is_static && a_dims.size() == 2 && a_dims[0] <= (once_ ? kFewRows : 1)) {
    const at::Tensor& weights = facts(b).constant.tensor;
    const bool transposed = b_desc.data.format_desc.blocking.strides[0] == 1;
    const int32_t in = request_plain(a);
    const int32_t out = define_plain(op.outputs[0]);
    emit(std::make_unique<RowProductAction>(in, out, RowProductAction::Sizes{a_dims[0], a_dims[1], y_dims[1]}, weights,
                                            bias, transposed),
         {in}, {out});
    post_ops_apart(op, op.outputs[0], true);
    return true;
  }
  Product product;
  product.source = a;
  // Nor for a prompt, which comes once.
  const bool packs = facts(b).is_static && a_dims.size() == 2 && !once_;
  if (facts(b).is_narrow() && once_) {
    b = widened_once(b, b_desc);
  } else if (facts(b).is_static) {
    product.weights = facts(b).constant.tensor;
  }
  product.weights_value = b;
  product.weights_desc = b_desc;
  product.bias = bias;
  product.destination = plain_desc(y_dims);
  const bool few = any_length_ && element_count(y_dims) * a_dims.back() < kWorthAKernel;
  const bool small = few && a_dims.back() >= kTerms && y_dims.back() >= kColumns;
  if (few && !bias.defined() && emit_small_products(op, a, a_dims, b, b_desc.dims(), y_dims)) return true;
  // Then one primitive serves any number of rows.
  product.open_rows = small && packs;
  product.source_desc = plain_desc(a_dims);
  product.key.reserve(kKeyBytes);
  product.key = "matmul";
  append(product.key, product.open_rows);
  append(product.key, product.open_rows ? Shape{a_dims.back()} : a_dims);
  append(product.key, b_desc);
  append(product.key, packs);
  append(product.key, bias.defined());
  const auto describe = [&](const Desc& destination, const dnnl::primitive_attr& attr) -> dnnl::primitive_desc {
    const Desc source = product.open_rows ? open_rows(a_dims.back()) : product.source_desc;
    const Desc weights = packs ? any_layout(b_desc.dims()) : b_desc;
    const Desc result = product.open_rows ? open_rows(destination.dims().back()) : destination;
    Shape bias_dims(y_dims.size(), 1);
    bias_dims.back() = y_dims.back();
    const auto form = bias.defined() ? dnnl::matmul::desc(source, weights, plain_desc(bias_dims), result)
                                     : dnnl::matmul::desc(source, weights, result);
    if (small) return without_own_kernel(form, attr);
    return dnnl::matmul::primitive_desc(form, attr, dnnl_cpu(), true);
  };
  product.describe = std::ref(describe);
  if (!small) return emit_product(op, product);
  const size_t general = general_posts(op, product.destination);
  if (general == op.post.size()) return emit_product(op, product);
  PlanOp first = op;
  first.post.resize(general);
  PlanOp rest = op;
  rest.post.erase(rest.post.begin(), rest.post.begin() + std::ssize(first.post));
  if (!emit_product(first, product)) return false;
  post_ops_apart(rest, op.outputs[0], true);
  return true;
}

bool Lowering::lower_matmul(const PlanOp& op) {
  const int32_t a = op.inputs[0];
  const int32_t b = op.inputs[1];
  if (!is_float(a) || !is_float(b)) return false;
  const Shape a_shape = facts(a).shape;
  const Shape b_shape = facts(b).shape;
  const Shape y_shape = facts(op.outputs[0]).shape;
  if (a_shape.size() < 2 || b_shape.size() < 2) return false;
  if (b_shape.size() == 2) {
    const int64_t rows = element_count(std::span(a_shape).first(a_shape.size() - 1));
    return emit_matmul(op, a, {rows, a_shape.back()}, b, plain_desc(b_shape), {}, {rows, b_shape[1]});
  }
  if (b_shape.size() > y_shape.size() || a_shape.size() > y_shape.size()) return false;
  return emit_matmul(op, a, padded_rank(a_shape, y_shape.size()), b, plain_desc(padded_rank(b_shape, y_shape.size())),
                     {}, y_shape);
}

bool Lowering::lower_gemm(const PlanOp& op) {
  const Node& node = *op.node;
  const int32_t a = op.inputs[0];
  const int32_t b = op.inputs[1];
  const int32_t c = op.inputs.size() > 2 ? op.inputs[2] : -1;
  if (!is_float(a) || !is_static_float(b) || node.get_int("transA", 0) != 0 || node.get_float("alpha", 1) != 1)
    return false;
  const Shape a_shape = facts(a).shape;
  const Shape y_shape = facts(op.outputs[0]).shape;
  if (c >= 0 && (!is_static_float(c) || node.get_float("beta", 1) != 1 || element_count(facts(c).shape) != y_shape[1]))
    return false;
  const bool transposed = node.get_int("transB", 0) != 0;
  const int64_t k = a_shape[1];
  const int64_t n = y_shape[1];
  const Desc weights({k, n}, memory::data_type::f32, transposed ? memory::dims{1, k} : memory::dims{n, 1});
  return emit_matmul(op, a, a_shape, b, weights, c >= 0 ? facts(c).constant.tensor : at::Tensor(), y_shape);
}

}  // namespace kaon
