#include <algorithm>
#include <limits>

#include "engine/arith.h"
#include "engine/memory_guard.h"
#include "engine/spatial.h"

namespace kaon {

namespace {

int64_t group_count(const OpInfo& info) {
  const int64_t groups = info.node().get_int("group", 1);
  if (groups < 1) fail(ErrorCode::InvalidInput, info.node().label(), "'group' must be at least 1, not {}", groups);
  return groups;
}

Kernel make_conv(const OpInfo& info) {
  return [window = window_attributes(info.node()), groups = group_count(info)](Call& call) {
    const at::Tensor y =
        convolve(widen(call.in(0)), widen(call.in(1)), optional_input(call, 2), window, groups, call.shapes_only());
    call.out(0, y, call.type(0));
  };
}

struct TransposeAttributes {
  WindowAttributes window;
  std::vector<int64_t> output_padding;
  std::vector<int64_t> output_shape;
  int64_t groups = 1;
};

/// The pads of one spatial axis of a transposed convolution, and what the output gets at its end.
struct TransposePads {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t extra = 0;
};

TransposePads transpose_pads(const TransposeAttributes& attributes, const SlidingWindow& window, size_t axis) {
  const bool same = window.rank() > 0 && (attributes.window.auto_pad == AutoPad::SameUpper ||
                                          attributes.window.auto_pad == AutoPad::SameLower);
  TransposePads pads{window.begin[axis], window.end[axis],
                     attributes.output_padding.empty() ? 0 : attributes.output_padding[axis]};
  if (attributes.output_shape.empty() && !same) return pads;
  const int64_t wanted =
      attributes.output_shape.empty() ? window.input[axis] * window.strides[axis] : attributes.output_shape[axis];
  const int64_t full = window.strides[axis] * (window.input[axis] - 1) + window.reach(axis);
  const int64_t total = std::max<int64_t>(0, full + pads.extra - wanted);
  pads.begin = attributes.window.auto_pad == AutoPad::SameUpper ? total / 2 : total - total / 2;
  pads.end = total - pads.begin;
  pads.extra = wanted - full + total;
  return pads;
}

at::Tensor convolve_transposed(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                               const TransposeAttributes& attributes) {
  if (x.dim() < 3 || weight.dim() != x.dim()) {
    fail(ErrorCode::InvalidInput, "input 1", "its rank is {}, the input's is {}; both must be 3 or more and alike",
         weight.dim(), x.dim());
  }
  // The window slides over the output, so its own output sizes mean nothing here and pads need no room.
  const size_t rank = static_cast<size_t>(x.dim()) - 2;
  SlidingWindow window;
  window.input = x.sizes().slice(2).vec();
  window.kernel = weight.sizes().slice(2).vec();
  window.strides = positive_or_ones(attributes.window.strides, rank, "strides");
  window.dilations = positive_or_ones(attributes.window.dilations, rank, "dilations");
  std::vector<int64_t> pads = attributes.window.pads;
  if (pads.empty() || attributes.window.auto_pad != AutoPad::NotSet) pads.assign(2 * rank, 0);
  std::vector<int64_t> output_shape = attributes.output_shape;
  if (pads.size() != 2 * rank || (!attributes.output_padding.empty() && attributes.output_padding.size() != rank) ||
      (!output_shape.empty() && output_shape.size() < rank)) {
    fail(ErrorCode::InvalidInput, "pads", "pads, output_padding and output_shape must fit {} spatial axes", rank);
  }
  TransposeAttributes resolved = attributes;
  // Some exporters give the batch and channels too.
  if (output_shape.size() > rank) {
    resolved.output_shape.assign(output_shape.end() - static_cast<int64_t>(rank), output_shape.end());
  }
  window.begin.assign(pads.begin(), pads.begin() + static_cast<int64_t>(rank));
  window.end.assign(pads.begin() + static_cast<int64_t>(rank), pads.end());
  std::vector<int64_t> begin, end, extra, crop_begin, crop_end;
  std::vector<int64_t> whole{x.size(0), weight.size(1) * resolved.groups}, cut = whole;
  bool native = true;
  for (size_t i = 0; i < rank; ++i) {
    const TransposePads axis = transpose_pads(resolved, window, i);
    begin.push_back(axis.begin);
    end.push_back(axis.end);
    extra.push_back(axis.extra);
    crop_begin.push_back(-axis.begin);
    crop_end.push_back(axis.extra - axis.end);
    whole.push_back(std::max<int64_t>(0, window.strides[i] * (window.input[i] - 1) + window.reach(i)));
    cut.push_back(std::max<int64_t>(0, whole.back() + crop_begin.back() + crop_end.back()));
    native = native && axis.begin == axis.end && axis.begin >= 0 && axis.extra >= 0 &&
             axis.extra < std::max(window.strides[i], window.dilations[i]);
  }
  require_room(native ? cut : whole);
  if (native) {
    return at::convolution(x, weight, bias, window.strides, begin, window.dilations, /*transposed=*/true, extra,
                           resolved.groups);
  }
  const std::vector<int64_t> zeros(rank, 0);
  const at::Tensor full = at::convolution(x, weight, {}, window.strides, zeros, window.dilations, /*transposed=*/true,
                                          zeros, resolved.groups);
  at::Tensor y = pad_spatial(full, crop_begin, crop_end, 0);
  if (!bias.defined()) return y;
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[1] = bias.numel();
  return y + bias.reshape(shape);
}

Kernel make_conv_transpose(const OpInfo& info) {
  const TransposeAttributes attributes{window_attributes(info.node()), info.node().get_ints("output_padding"),
                                       info.node().get_ints("output_shape"), group_count(info)};
  return [attributes](Call& call) {
    const at::Tensor y = convolve_transposed(widen(call.in(0)), widen(call.in(1)), optional_input(call, 2), attributes);
    call.out(0, y, call.type(0));
  };
}

using Activation = std::function<at::Tensor(const at::Tensor&)>;

Activation fused_activation(const OpInfo& info) {
  const std::string name = info.node().get_string("activation", "");
  const auto* given = info.node().get_if<std::vector<float>>("activation_params");
  const std::vector<float> params = given == nullptr ? std::vector<float>() : *given;
  const auto param = [&](size_t i, float otherwise) { return i < params.size() ? params[i] : otherwise; };
  if (name.empty()) return [](const at::Tensor& x) { return x; };
  if (name == "Relu") return [](const at::Tensor& x) { return at::relu(x); };
  if (name == "Tanh") return [](const at::Tensor& x) { return at::tanh(x); };
  if (name == "Sigmoid") return [](const at::Tensor& x) { return at::sigmoid(x); };
  if (name == "LeakyRelu") {
    return [alpha = param(0, 0.01F)](const at::Tensor& x) { return at::leaky_relu(x, alpha); };
  }
  if (name == "Clip") {
    return [low = param(0, std::numeric_limits<float>::lowest()),
            high = param(1, std::numeric_limits<float>::max())](const at::Tensor& x) { return x.clamp(low, high); };
  }
  if (name == "HardSigmoid") {
    return
        [alpha = param(0, 0.2F), beta = param(1, 0.5F)](const at::Tensor& x) { return (x * alpha + beta).clamp(0, 1); };
  }
  info.unsupported("activation '" + name + "'; Relu, Tanh, Sigmoid, LeakyRelu, Clip and HardSigmoid are known");
}

Kernel make_fused_conv(const OpInfo& info) {
  return [window = window_attributes(info.node()), groups = group_count(info),
          activation = fused_activation(info)](Call& call) {
    at::Tensor y = convolve(widen(call.in(0)), widen(call.in(1)), optional_input(call, 2), window, groups);
    if (call.has(3)) y = y + widen(call.in(3));
    call.out(0, activation(y), call.type(0));
  };
}

/// Samples x [N, C, H, W] at row and column [N, P] between its elements, as if zeros lay around it: [N, C, P].
at::Tensor sample_bilinear(const at::Tensor& x, const at::Tensor& row, const at::Tensor& column) {
  const int64_t height = x.size(2), width = x.size(3);
  const at::Tensor flat = x.reshape({x.size(0), x.size(1), height * width});
  const at::Tensor top = row.floor();
  const at::Tensor left = column.floor();
  at::Tensor sum;
  for (int corner = 0; corner < 4; ++corner) {
    const at::Tensor r = top + corner / 2;
    const at::Tensor c = left + corner % 2;
    const at::Tensor inside = r.ge(0).logical_and(r.lt(height)).logical_and(c.ge(0)).logical_and(c.lt(width));
    const at::Tensor weight = (1 - (row - r).abs()) * (1 - (column - c).abs()) * inside;
    const at::Tensor index = (r.clamp(0, height - 1) * width + c.clamp(0, width - 1)).to(at::kLong).unsqueeze(1);
    const at::Tensor part = flat.gather(2, index.expand({-1, x.size(1), -1})) * weight.unsqueeze(1);
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

struct DeformAttributes {
  WindowAttributes window;
  int64_t groups = 1;
  int64_t offset_groups = 1;
};

void deform_conv(Call& call, const DeformAttributes& attributes) {
  const at::Tensor x = widen(call.in(0));
  const at::Tensor weight = widen(call.in(1));
  const int64_t groups = attributes.groups, offset_groups = attributes.offset_groups;
  if (x.dim() != 4 || weight.dim() != 4 || x.size(1) % offset_groups != 0 || weight.size(0) % groups != 0) {
    fail(ErrorCode::InvalidInput, "input 0", "DeformConv needs two spatial axes and channels that the groups divide");
  }
  const SlidingWindow window = slide(attributes.window, x.sizes(), weight.sizes().slice(2).vec());
  const int64_t n = x.size(0), taps = window.kernel[0] * window.kernel[1];
  const int64_t height = window.output[0], width = window.output[1];
  const at::Tensor offset = widen(call.in(2)).reshape({n, offset_groups, taps, 2, height, width});
  const auto place = [&](size_t axis) {
    std::vector<int64_t> tap(5, 1), position(5, 1);
    tap[1 + axis] = window.kernel[axis];
    position[3 + axis] = window.output[axis];
    const at::Tensor inside = at::arange(window.kernel[axis], x.options()) * window.dilations[axis];
    const at::Tensor start = at::arange(window.output[axis], x.options()) * window.strides[axis] - window.begin[axis];
    return (inside.reshape(tap) + start.reshape(position))
        .expand({1, window.kernel[0], window.kernel[1], height, width})
        .reshape({1, taps, height, width});
  };
  std::vector<at::Tensor> columns;
  const int64_t channels = x.size(1) / offset_groups;
  for (int64_t g = 0; g < offset_groups; ++g) {
    const at::Tensor row = (place(0) + offset.select(1, g).select(2, 0)).reshape({n, -1});
    const at::Tensor column = (place(1) + offset.select(1, g).select(2, 1)).reshape({n, -1});
    at::Tensor sampled = sample_bilinear(x.narrow(1, g * channels, channels), row, column);
    if (call.has(4)) {
      sampled = sampled * widen(call.in(4)).reshape({n, offset_groups, -1}).narrow(1, g, 1);
    }
    columns.push_back(sampled);
  }
  const at::Tensor all = at::cat(columns, 1).reshape({n, groups, x.size(1) / groups * taps, height * width});
  const at::Tensor kernels = weight.reshape({1, groups, weight.size(0) / groups, -1});
  at::Tensor y = at::matmul(kernels, all).reshape({n, weight.size(0), height, width});
  if (call.has(3)) y = y + widen(call.in(3)).reshape({1, -1, 1, 1});
  call.out(0, y, call.type(0));
}

Kernel make_deform_conv(const OpInfo& info) {
  const DeformAttributes attributes{window_attributes(info.node()), group_count(info),
                                    std::max<int64_t>(1, info.node().get_int("offset_group", 1))};
  return [attributes](Call& call) { deform_conv(call, attributes); };
}

}  // namespace

void register_conv(OpRegistry& ops) {
  ops.add("Conv", make_conv, per_sample());
  ops.add("ConvTranspose", make_conv_transpose, per_sample());
  ops.add("DeformConv", make_deform_conv, fixed_shape());
  ops.add("FusedConv", make_fused_conv, fixed_shape(), kMicrosoft);
}

}  // namespace kaon
