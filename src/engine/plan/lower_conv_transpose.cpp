// Transposed convolutions. Whatever name oneDNN gives to the implementation of a deconvolution, it adds bias and
// post-ops element by element, at up to a hundred times the cost of the products: they are never left to it.
#include <algorithm>

#include "engine/plan/lowering.h"

namespace kaon {

using dnnl::algorithm;

namespace {

/// y = x · scale + shift for each channel, collected from a bias and the post-ops that come first.
struct ChannelAffine {
  at::Tensor scale, shift;  ///< undefined: 1 and 0
  size_t taken = 0;         ///< post-ops that it stands for
};

ChannelAffine leading_affine(const PlanGraph& graph, const PlanOp& op, const at::Tensor& bias) {
  ChannelAffine affine;
  affine.shift = bias;
  const int64_t channels = graph.facts(op.outputs[0]).shape[1];
  const auto multiply = [&](const at::Tensor& by) {
    affine.scale = affine.scale.defined() ? affine.scale * by : by;
    if (affine.shift.defined()) affine.shift = affine.shift * by;
  };
  const auto add = [&](const at::Tensor& what) { affine.shift = affine.shift.defined() ? affine.shift + what : what; };
  for (const PostOp& post : op.post) {
    const bool binary = post.algorithm == algorithm::binary_mul || post.algorithm == algorithm::binary_add;
    if (post.algorithm == algorithm::eltwise_linear) {
      multiply(at::full({channels}, post.alpha));
      add(at::full({channels}, post.beta));
    } else if (binary && graph.facts(post.operand).is_static) {
      const at::Tensor operand = graph.facts(post.operand).constant.tensor;
      if (operand.numel() != 1 && operand.numel() != channels) break;
      const at::Tensor row = operand.reshape({-1}).expand({channels});
      post.algorithm == algorithm::binary_mul ? multiply(row) : add(row);
    } else {
      break;
    }
    ++affine.taken;
  }
  return affine;
}

}  // namespace

bool Lowering::lower_conv_transpose(const PlanOp& op) {
  const int32_t x = op.inputs[0];
  const int32_t w = op.inputs[1];
  const int32_t b = op.inputs.size() > 2 ? op.inputs[2] : -1;
  if (!is_float(x) || !is_static_float(w) || (b >= 0 && !is_static_float(b)) || op.fold_scale >= 0) return false;
  const Node& node = *op.node;
  if (node.find("output_shape") != nullptr || node.get_string("auto_pad", "NOTSET") != "NOTSET") return false;
  const Shape x_shape = facts(x).shape;
  const Shape w_shape = facts(w).shape;
  const Shape y_shape = facts(op.outputs[0]).shape;
  if (x_shape.size() < 3 || x_shape.size() > 5) return false;
  const WindowAttributes attributes = window_attributes(node);
  const size_t rank = x_shape.size() - 2;
  const Shape window_strides = positive_or_ones(attributes.strides, rank, "strides");
  Shape dilations = positive_or_ones(attributes.dilations, rank, "dilations");
  Shape begin(rank, 0), end(rank, 0);
  const int64_t groups = node.get_int("group", 1);
  bool upscales = groups == 1;
  for (size_t i = 0; i < rank; ++i) {
    if (!attributes.pads.empty()) begin[i] = attributes.pads[i];
    // Output padding is part of the output's size; oneDNN sees it as less cropping at the end.
    end[i] =
        (x_shape[i + 2] - 1) * window_strides[i] + (w_shape[i + 2] - 1) * dilations[i] + 1 - begin[i] - y_shape[i + 2];
    upscales &= w_shape[i + 2] == window_strides[i] && dilations[i] == 1 && begin[i] == 0 && end[i] == 0;
    --dilations[i];
  }

  const ChannelAffine affine = leading_affine(graph_, op, b >= 0 ? facts(b).constant.tensor : at::Tensor());
  at::Tensor weights = facts(w).constant.tensor;
  if (affine.scale.defined()) {
    Shape grouped = w_shape, along_outputs(w_shape.size() + 1, 1);
    grouped[0] /= groups;
    grouped.insert(grouped.begin(), groups);
    along_outputs[0] = groups;
    along_outputs[2] = w_shape[1];
    weights = (weights.reshape(grouped) * affine.scale.reshape(along_outputs)).reshape(w_shape).contiguous();
  }
  PlanOp rest = op;
  rest.post.erase(rest.post.begin(), rest.post.begin() + static_cast<std::ptrdiff_t>(affine.taken));
  if (upscales && emit_upscaling(rest, weights, affine.shift)) return true;

  // ONNX keeps [in, out/group, kernel…], oneDNN speaks of [group, out/group, in/group, kernel…].
  Shape dims{groups, w_shape[1], w_shape[0] / groups};
  const int64_t area = element_count(std::span(w_shape).subspan(2));
  dnnl::memory::dims strides{dims[2] * dims[1] * area, area, dims[1] * area};
  int64_t stride = area;
  for (size_t i = 2; i < w_shape.size(); ++i) {
    dims.push_back(w_shape[i]);
    stride /= w_shape[i];
    strides.push_back(stride);
  }
  if (groups == 1) {
    dims.erase(dims.begin());
    strides.erase(strides.begin());
  }
  Product product;
  product.source = x;
  product.weights = weights;
  product.weights_desc = Desc(dims, dnnl::memory::data_type::f32, strides);
  product.destination = any_layout(y_shape);
  product.describe = [=](const Desc& destination, const dnnl::primitive_attr& attr) -> dnnl::primitive_desc {
    const dnnl::deconvolution_forward::desc form(dnnl::prop_kind::forward_inference, algorithm::deconvolution_direct,
                                                 any_layout(x_shape), any_layout(dims), destination, window_strides,
                                                 dilations, begin, end);
    return dnnl::deconvolution_forward::primitive_desc(form, attr, dnnl_cpu(), true);
  };
  PlanOp bare = op;
  bare.post.clear();
  if (!emit_product(bare, product)) return false;
  if (affine.shift.defined()) {
    Shape along_channels(y_shape.size(), 1);
    along_channels[1] = y_shape[1];
    rest.post.insert(rest.post.begin(),
                     {algorithm::binary_add, 0, 0, add_constant(affine.shift.reshape(along_channels))});
  }
  post_ops_apart(rest, op.outputs[0], true);
  return true;
}

/// Windows that neither overlap nor leave gaps: a convolution of 1 x 1 that gives every place of the window as channels
/// of its own, which are then moved there. What follows and treats all places alike is done by the convolution.
bool Lowering::emit_upscaling(const PlanOp& op, const at::Tensor& weights, const at::Tensor& bias) {
  const int32_t y = op.outputs[0];
  const Shape y_shape = facts(y).shape;
  const Shape x_shape = facts(op.inputs[0]).shape;
  if (element_count(y_shape) >= INT32_MAX) return false;
  const int64_t inputs = weights.size(0), outputs = weights.size(1);
  const int64_t area = weights.numel() / (inputs * outputs);
  Shape wide_shape = x_shape, w_shape(x_shape.size(), 1);
  wide_shape[1] = area * outputs;
  w_shape[0] = area * outputs;
  w_shape[1] = inputs;

  PlanOp wide = op;
  wide.post.clear();
  PlanOp rest = op;
  while (!rest.post.empty() && rest.post.front().operand < 0) {
    wide.post.push_back(rest.post.front());
    rest.post.erase(rest.post.begin());
  }
  ValueFacts wide_facts;
  wide_facts.shape = wide_shape;
  wide_facts.type = DType::Float32;
  const int32_t wide_value = graph_.add_value(std::move(wide_facts));
  states_.emplace_back();
  wide.outputs = {wide_value};

  Product product;
  product.source = op.inputs[0];
  product.weights = weights.reshape({inputs, outputs, area}).permute({2, 1, 0}).reshape(w_shape).contiguous();
  if (bias.defined()) product.bias = bias.repeat({area}).contiguous();
  product.weights_desc = plain_desc(w_shape);
  product.destination = any_layout(wide_shape);
  const Shape ones(x_shape.size() - 2, 1), zeros(x_shape.size() - 2, 0);
  product.describe = convolution(x_shape, w_shape, product.bias.defined(), {ones, zeros, zeros, zeros});
  if (!emit_product(wide, product)) return false;

  // [n, window…, channel, place…] to [n, channel, place × window …]
  Shape split{wide_shape[0]};
  std::vector<int64_t> order{0, static_cast<int64_t>(x_shape.size()) - 1};
  for (size_t i = 2; i < x_shape.size(); ++i) split.push_back(weights.size(static_cast<int64_t>(i)));
  split.push_back(outputs);
  for (size_t i = 2; i < x_shape.size(); ++i) {
    split.push_back(x_shape[i]);
    order.push_back(static_cast<int64_t>(x_shape.size() - 2 + i));
    order.push_back(static_cast<int64_t>(i) - 1);
  }
  defer(y, {wide_value, counting(wide_shape).reshape(split).permute(order).reshape(y_shape)});
  if (!rest.post.empty()) {
    materialise(y, plain_desc(y_shape));
    post_ops_apart(rest, y, true);
  }
  return true;
}

}  // namespace kaon
