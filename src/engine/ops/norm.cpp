#include <algorithm>
#include <numeric>

#include "engine/arith.h"

namespace kaon {

namespace {

struct BatchNormAttributes {
  float epsilon = 1e-5F;
  float momentum = 0.9F;
  bool training = false;
  bool spatial = true;
};

void require_per_channel(const at::Tensor& x, const at::Tensor& parameter, size_t input) {
  if (x.dim() >= 2 && parameter.dim() == 1 && parameter.size(0) == x.size(1)) return;
  fail(ErrorCode::InvalidInput, fmt::format("input {}", input), "{} must hold one number for each channel of {}",
       to_string(parameter.sizes()), to_string(x.sizes()));
}

void batch_norm(Call& call, const BatchNormAttributes& attributes) {
  const at::Tensor x = widen(call.in(0));
  const auto parameter = [&](size_t input) { return call.in(input).to(x.scalar_type()); };
  const at::Tensor scale = parameter(1), bias = parameter(2), mean = parameter(3), variance = parameter(4);
  if (attributes.spatial && x.dim() > 1) {
    for (size_t i = 1; i < 5; ++i) require_per_channel(x, call.in(i), i);
  }
  if (attributes.training && x.numel() == 0) {
    fail(ErrorCode::InvalidInput, "input 0", "{} holds nothing to take statistics of", to_string(x.sizes()));
  }
  if (!attributes.training && call.shapes_only()) return call.out_zeros(0, x.sizes(), call.type(0));
  if (!attributes.training) {
    // ATen's fused form has no gradient for the statistics.
    const bool fused = attributes.spatial && x.dim() > 1 && !mean.requires_grad() && !variance.requires_grad();
    if (fused) {
      call.out(0, at::batch_norm(x, scale, bias, mean, variance, false, 0, attributes.epsilon, false), call.type(0));
      return;
    }
    std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
    if (attributes.spatial && x.dim() > 1) shape[1] = x.size(1);
    const auto shaped = [&](const at::Tensor& values) { return attributes.spatial ? values.reshape(shape) : values; };
    const at::Tensor factor = shaped(scale * (variance + attributes.epsilon).rsqrt());
    call.out(0, (x - shaped(mean)) * factor + shaped(bias), call.type(0));
    return;
  }
  const auto running = [&](const at::Tensor& old, const at::Tensor& now) {
    return old * attributes.momentum + now.reshape(old.sizes()) * (1 - attributes.momentum);
  };
  at::Tensor y, batch_mean, batch_variance;
  if (attributes.spatial && x.dim() > 1) {
    // One pass forward and one back; the statistics come without a gradient.
    at::Tensor inverse;
    std::tie(y, batch_mean, inverse) =
        at::native_batch_norm(x, scale, bias, {}, {}, /*training=*/true, 0, attributes.epsilon);
    batch_variance = inverse.pow(-2) - attributes.epsilon;
  } else {
    std::vector<int64_t> axes{0};
    batch_mean = x.mean(axes, /*keepdim=*/true);
    batch_variance = at::var(x, axes, /*unbiased=*/false, /*keepdim=*/true);
    const auto shaped = [&](const at::Tensor& values) { return values.reshape(batch_mean.sizes()); };
    y = (x - batch_mean) * (batch_variance + attributes.epsilon).rsqrt() * shaped(scale) + shaped(bias);
  }
  call.out(0, y, call.type(0));
  call.out(1, running(mean, batch_mean), call.type(3));
  call.out(2, running(variance, batch_variance), call.type(4));
  call.out(3, batch_mean.reshape(mean.sizes()), call.type(3));
  call.out(4, batch_variance.reshape(variance.sizes()), call.type(4));
}

Kernel make_batch_norm(const OpInfo& info) {
  const Node& node = info.node();
  BatchNormAttributes attributes{node.get_float("epsilon", 1e-5F), node.get_float("momentum", 0.9F)};
  attributes.spatial = node.get_int("spatial", 1) != 0;
  // Before there was an attribute, asking for the batch's statistics meant training.
  attributes.training = info.opset() >= 14 ? node.get_int("training_mode", 0) != 0 : info.has_output(1);
  return [attributes](Call& call) { batch_norm(call, attributes); };
}

Kernel make_instance_norm(const OpInfo& info) {
  const float epsilon = info.node().get_float("epsilon", 1e-5F);
  return [epsilon](Call& call) {
    for (size_t i = 1; i < 3; ++i) require_per_channel(call.in(0), call.in(i), i);
    const at::Tensor y = at::instance_norm(widen(call.in(0)), widen(call.in(1)), widen(call.in(2)), {}, {},
                                           /*use_input_stats=*/true, 0, epsilon, false);
    call.out(0, y, call.type(0));
  };
}

struct Normalized {
  at::Tensor y;
  at::Tensor mean;
  at::Tensor inverse_deviation;
};

Normalized layer_norm(const at::Tensor& x, int64_t axis, const at::Tensor& scale, const at::Tensor& bias,
                      double epsilon) {
  const at::IntArrayRef shape = x.sizes().slice(static_cast<size_t>(wrap_axis(axis, x.dim())));
  const bool fused = scale.defined() && scale.sizes() == shape && (!bias.defined() || bias.sizes() == shape);
  auto [y, mean, inverse] =
      at::native_layer_norm(x, shape, fused ? scale : at::Tensor(), fused ? bias : at::Tensor(), epsilon);
  if (!fused && scale.defined()) y = y * scale;
  if (!fused && bias.defined()) y = y + bias;
  return {y, mean, inverse};
}

Normalized rms_norm(const at::Tensor& x, int64_t axis, const at::Tensor& scale, double epsilon) {
  std::vector<int64_t> axes;
  for (int64_t i = wrap_axis(axis, x.dim()); i < x.dim(); ++i) axes.push_back(i);
  const at::Tensor inverse = (x.square().mean(axes, /*keepdim=*/true) + epsilon).rsqrt();
  return {x * inverse * scale, {}, inverse};
}

/// Whether only a shape is asked for, and it is that of the first input.
bool keeps_shape(const Call& call) {
  const at::IntArrayRef x = call.in(0).sizes(), scale = call.in(1).sizes();
  return call.shapes_only() && !call.wants(1) && !x.empty() && scale.size() == 1 && scale[0] == x.back();
}

Kernel make_layer_norm(const OpInfo& info) {
  const int64_t axis = info.node().get_int("axis", -1);
  const float epsilon = info.node().get_float("epsilon", 1e-5F);
  return [axis, epsilon](Call& call) {
    if (keeps_shape(call)) return call.out_zeros(0, call.in(0).sizes(), call.type(0));
    const Normalized result = layer_norm(widen(call.in(0)), axis, widen(call.in(1)), optional_input(call, 2), epsilon);
    call.out(0, result.y, call.type(0));
    call.out(1, result.mean, DType::Float32);
    call.out(2, result.inverse_deviation, DType::Float32);
  };
}

Kernel make_rms_norm(const OpInfo& info) {
  const int64_t axis = info.node().get_int("axis", -1);
  const float epsilon = info.node().get_float("epsilon", 1e-5F);
  return [axis, epsilon](Call& call) {
    if (keeps_shape(call)) return call.out_zeros(0, call.in(0).sizes(), call.type(0));
    const Normalized result = rms_norm(widen(call.in(0)), axis, widen(call.in(1)), epsilon);
    call.out(0, result.y, call.type(0));
    call.out(1, result.inverse_deviation, DType::Float32);
  };
}

/// Normalizes input + skip (+ bias); outputs that sum too, for the next residual. Input positions: 0 input, 1 skip,
/// 2 gamma, then beta (unless it is simplified) and bias.
Kernel make_skip_norm(const OpInfo& info, bool simplified) {
  const float epsilon = info.node().get_float("epsilon", 1e-12F);
  return [epsilon, simplified](Call& call) {
    const size_t bias = simplified ? 3 : 4;
    at::Tensor sum = widen(call.in(0)) + widen(call.in(1));
    if (call.has(bias)) sum = sum + widen(call.in(bias));
    const at::Tensor gamma = widen(call.in(2));
    const Normalized result =
        simplified ? rms_norm(sum, -1, gamma, epsilon) : layer_norm(sum, -1, gamma, optional_input(call, 3), epsilon);
    call.out(0, result.y, call.type(0));
    if (!simplified) call.out(1, result.mean, DType::Float32);
    call.out(2, result.inverse_deviation, DType::Float32);
    call.out(3, sum, call.type(0));
  };
}

Kernel make_group_norm(const OpInfo& info) {
  const int64_t groups = info.node().get_int("num_groups", 0);
  if (groups < 1) fail(ErrorCode::InvalidInput, info.node().label(), "'num_groups' must be at least 1");
  const float epsilon = info.node().get_float("epsilon", 1e-5F);
  const bool per_group = info.opset() < 21;
  return [groups, epsilon, per_group](Call& call) {
    const at::Tensor x = widen(call.in(0));
    at::Tensor scale = widen(call.in(1));
    at::Tensor bias = widen(call.in(2));
    if (x.dim() < 2 || x.size(1) % groups != 0) {
      fail(ErrorCode::InvalidInput, "input 0", "{} does not have a multiple of {} channels", to_string(x.sizes()),
           groups);
    }
    if (per_group) {
      scale = scale.repeat_interleave(x.size(1) / groups);
      bias = bias.repeat_interleave(x.size(1) / groups);
    }
    call.out(0, at::group_norm(x, groups, scale, bias, epsilon), call.type(0));
  };
}

Kernel make_lp_norm(const OpInfo& info) {
  const int64_t axis = info.node().get_int("axis", -1);
  const int64_t p = info.node().get_int("p", 2);
  if (p != 1 && p != 2) info.unsupported(fmt::format("p is {}; 1 and 2 are known", p));
  return [axis, p](Call& call) {
    const at::Tensor x = widen(call.in(0));
    const at::Tensor length = at::norm(x, p, wrap_axis(axis, x.dim()), /*keepdim=*/true);
    call.out(0, x / length.masked_fill(length.eq(0), 1), call.type(0));
  };
}

/// Divides by the energy of the neighbouring channels.
Kernel make_lrn(const OpInfo& info) {
  const Node& node = info.node();
  const int64_t size = node.get_int("size", 0);
  if (size < 1) fail(ErrorCode::InvalidInput, node.label(), "'size' must be at least 1, not {}", size);
  return [size, alpha = node.get_float("alpha", 1e-4F), beta = node.get_float("beta", 0.75F),
          bias = node.get_float("bias", 1)](Call& call) {
    const at::Tensor x = widen(call.in(0));
    const int64_t channels = x.size(1);
    const at::Tensor squares = x.square().reshape({x.size(0), 1, channels, -1});
    // What a wide window sees beyond the channels is zero.
    const int64_t before = std::min((size - 1) / 2, channels), after = std::min(size / 2, channels);
    const at::Tensor padded = at::constant_pad_nd(squares, {0, 0, before, after});
    const at::Tensor mean =
        at::avg_pool2d(padded, {before + after + 1, 1}, {1, 1}, 0, false, true, size).reshape(x.sizes());
    call.out(0, x / (mean * alpha + bias).pow(beta), call.type(0));
  };
}

void decide_batch_norm(const NodeView& view, OpFacts& facts) {
  if (view.node.get_int("training_mode", 0) != 0) facts.samples = Samples::Mixed;
}

}  // namespace

void register_norm(OpRegistry& ops) {
  ops.add("BatchNormalization", make_batch_norm, per_sample().where(decide_batch_norm));
  ops.add("InstanceNormalization", make_instance_norm, per_sample());
  ops.add("GroupNormalization", make_group_norm, per_sample());
  ops.add("LpNormalization", make_lp_norm, fixed_shape());
  ops.add("LRN", make_lrn, per_sample());
  ops.add("RMSNormalization", make_rms_norm, fixed_shape());
  // ONNX Runtime's optimizer puts these two into either domain.
  for (const char* domain : {"", kMicrosoft}) {
    ops.add("LayerNormalization", make_layer_norm, fixed_shape(), domain);
    ops.add("SimplifiedLayerNormalization", make_rms_norm, fixed_shape(), domain);
  }
  ops.add(
      "SkipLayerNormalization", [](const OpInfo& info) { return make_skip_norm(info, false); }, fixed_shape(),
      kMicrosoft);
  ops.add(
      "SkipSimplifiedLayerNormalization", [](const OpInfo& info) { return make_skip_norm(info, true); }, fixed_shape(),
      kMicrosoft);
}

}  // namespace kaon
