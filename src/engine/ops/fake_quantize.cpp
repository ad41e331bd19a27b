#include "graph/fake_quantize.h"

#include <torch/csrc/autograd/custom_function.h>

#include "engine/arith.h"

namespace kaon {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

FloatView view_of(const at::Tensor& tensor) {
  return std::span<const float>(tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel()));
}

/// Parameters as the node's inputs give them.
QuantParams given_params(const TensorSpec& spec, const Shape& shape, const at::Tensor& scale, const at::Tensor& zero) {
  QuantParams params;
  params.tiling = scale.numel() == 1 ? Tiling::per_tensor(shape) : tiling_of(spec, shape);
  const at::Tensor scales = scale.contiguous();
  params.scale.assign(scales.data_ptr<float>(), scales.data_ptr<float>() + scales.numel());
  if (zero.defined()) {
    const at::Tensor zeros = zero.contiguous();
    params.zero_point.assign(zeros.data_ptr<int32_t>(), zeros.data_ptr<int32_t>() + zeros.numel());
  }
  return params;
}

at::Tensor quantized(const at::Tensor& x, const TensorSpec& spec, const QuantParams* params) {
  const at::Tensor in = x.contiguous();
  const Shape shape(x.sizes().begin(), x.sizes().end());
  at::Tensor out = at::empty(x.sizes(), x.options().requires_grad(false));
  const std::span<float> to(out.data_ptr<float>(), static_cast<size_t>(out.numel()));
  if (params == nullptr) {
    fake_quantize(view_of(in), to, shape, spec);
  } else {
    fake_quantize(view_of(in), to, shape, spec, *params);
  }
  return out;
}

/// The tile that each element lies in, flat.
at::Tensor tile_of_elements(const Tiling& tiling) {
  const std::vector<int64_t> grid = tiling.grid();
  at::Tensor index = at::zeros({}, at::kLong);
  for (size_t axis = 0; axis < grid.size(); ++axis) {
    const at::Tensor along =
        at::arange(tiling.shape[axis], at::kLong).div(std::max<int64_t>(tiling.tile[axis], 1), "floor");
    index = index.unsqueeze(-1) * grid[axis] + along;
  }
  return index.reshape({-1});
}

/// The straight-through estimator: rounding has slope 1, clipping slope 0. The scale's slope is that of LSQ (Esser et
/// al. 2020), without its factor: code - x/scale inside the range, the bound outside.
struct StraightThrough : torch::autograd::Function<StraightThrough> {
  /// `given` is null for Block formats; `scale` has no elements where the parameters follow from x.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& scale,
                            const QuantParams* given, const TensorSpec& spec) {
    at::Tensor out = quantized(x, spec, given);
    context->saved_data["clips"] = given != nullptr;
    if (given == nullptr) return out;

    const QuantParams& params = *given;
    const Format& format = kaon::format(spec.format);
    at::Tensor zeros = at::zeros({static_cast<int64_t>(params.scale.size())}, at::kFloat);
    for (size_t i = 0; i < params.zero_point.size(); ++i) zeros[static_cast<int64_t>(i)] = params.zero_point[i];
    const at::Tensor tile = params.scale.size() > 1 ? tile_of_elements(params.tiling) : at::Tensor();
    const auto spread = [&](const at::Tensor& of_tiles) {
      return tile.defined() ? of_tiles.index_select(0, tile).view(x.sizes()) : of_tiles[0];
    };
    const at::Tensor scales = spread(at::tensor(params.scale));
    const at::Tensor zero_points = spread(zeros);
    const at::Tensor scaled = x.detach() / scales;
    const at::Tensor inside = scaled.ge(format.min() - zero_points).logical_and_(scaled.le(format.max() - zero_points));
    const at::Tensor slope = scale.numel() > 0 ? out / scales - at::where(inside, scaled, 0.0) : at::Tensor();
    context->save_for_backward({inside, slope, tile});
    context->saved_data["scale_shape"] = scale.sizes();
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (!context->saved_data["clips"].toBool()) return {gradients[0], {}, {}, {}};
    const variable_list saved = context->get_saved_variables();
    const at::Tensor for_x = gradients[0] * saved[0];
    at::Tensor for_scale;
    if (saved[1].defined()) {
      const std::vector<int64_t> shape = context->saved_data["scale_shape"].toIntVector();
      const at::Tensor of_elements = (gradients[0] * saved[1]).reshape({-1});
      for_scale =
          saved[2].defined()
              ? at::zeros({c10::multiply_integers(shape)}, of_elements.options()).index_add(0, saved[2], of_elements)
              : of_elements.sum();
      for_scale = for_scale.reshape(shape);
    }
    return {for_x, for_scale, {}, {}};
  }
};

Kernel make_kernel(const OpInfo& info) {
  const TensorSpec spec = fake_quantize_spec(info.node());
  if (has_own_scales(spec) && info.has_input(1)) {
    info.unsupported(fmt::format("{} carries its own scales and takes none", spec.format));
  }
  return [spec](Call& call) {
    const at::Tensor& x = call.in(0);
    const at::Tensor scale = call.has(1) ? call.in(1) : at::Tensor();
    const at::Tensor zero = call.has(2) ? call.in(2) : at::Tensor();
    const auto check_type = [&](size_t input, DType wanted) {
      if (!call.has(input) || call.type(input) == wanted) return;
      fail(ErrorCode::InvalidInput, fmt::format("input {}", input), "must be {}, not {}", name_of(wanted),
           name_of(call.type(input)));
    };
    check_type(0, DType::Float32);
    check_type(1, DType::Float32);
    check_type(2, DType::Int32);
    if (zero.defined() && !scale.defined()) {
      fail(ErrorCode::InvalidInput, "input 2", "a zero point needs a scale beside it");
    }
    if (call.shapes_only()) return call.out_zeros(0, x.sizes(), DType::Float32);
    const Shape shape(x.sizes().begin(), x.sizes().end());
    std::optional<QuantParams> params;
    if (scale.defined()) params = given_params(spec, shape, scale, zero);
    const bool differentiable =
        at::GradMode::is_enabled() && (x.requires_grad() || (scale.defined() && scale.requires_grad()));
    if (!differentiable) {
      call.out(0, quantized(x, spec, params ? &*params : nullptr));
      return;
    }
    if (!params && !has_own_scales(spec)) params = choose_params(view_of(x.contiguous()), shape, spec);
    const at::Tensor learned = scale.defined() ? scale : at::empty({0}, at::kFloat);
    call.out(0, StraightThrough::apply(x, learned, params ? &*params : nullptr, spec));
  };
}

bool keeps_samples_apart(const TensorSpec& spec, bool given, int64_t rank) {
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

void decide_samples(const NodeView& view, OpFacts& facts) {
  const std::optional<Shape> shape = view.shape(0);
  const bool apart =
      shape && !shape->empty() && keeps_samples_apart(fake_quantize_spec(view.node), view.has(1), std::ssize(*shape));
  if (!apart) facts.samples = Samples::Mixed;
}

}  // namespace

void register_fake_quantize(OpRegistry& registry) {
  registry.add("FakeQuantize", make_kernel, per_sample().where(decide_samples), kKaon);
}

}  // namespace kaon
