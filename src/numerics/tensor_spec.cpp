#include "numerics/tensor_spec.h"

namespace kaon {
namespace {

QuantizeOptions options_of(const TensorSpec& spec) {
  QuantizeOptions options;
  options.rounding = spec.rounding;
  options.scale_mode = spec.block_scale;
  return options;
}

}  // namespace

bool is_cast(const Format& format) { return format.kind == FormatKind::Float && format.bits == 16; }

bool has_own_scales(const TensorSpec& spec) { return format(spec.format).kind == FormatKind::Block; }

bool learns_scales(const Format& format) { return format.kind != FormatKind::Block && !is_cast(format); }

Tiling tiling_of(const TensorSpec& spec, std::span<const int64_t> shape) {
  switch (spec.granularity) {
    case Granularity::PerTensor: return Tiling::per_tensor(shape);
    case Granularity::PerChannel: return Tiling::per_channel(shape, spec.axis);
    case Granularity::PerGroup: return Tiling::per_group(shape, spec.axis, spec.group_size);
    case Granularity::PerBlock: return Tiling::per_block(shape, spec.group_size, spec.group_size);
    case Granularity::PerToken: return Tiling::per_token(shape);
  }
  return Tiling::per_tensor(shape);
}

QuantParams choose_params(FloatView in, std::span<const int64_t> shape, const TensorSpec& spec) {
  const Format& f = format(spec.format);
  if (is_cast(f)) return {Tiling::per_tensor(shape), {1.0F}, {}};
  return choose_params(in, tiling_of(spec, shape), f, spec.symmetric ? Symmetry::Symmetric : Symmetry::Asymmetric,
                       spec.scale_type);
}

void fake_quantize(FloatView in, std::span<float> out, std::span<const int64_t> shape, const TensorSpec& spec,
                   const QuantParams& params) {
  const Format& f = format(spec.format);
  if (params.scale.size() == 1 && params.tiling.element_count() != in.size) {
    fake_quantize(in, out, f, {Tiling::per_tensor(shape), params.scale, params.zero_point}, options_of(spec));
  } else {
    fake_quantize(in, out, f, params, options_of(spec));
  }
}

void fake_quantize(FloatView in, std::span<float> out, std::span<const int64_t> shape, const TensorSpec& spec) {
  if (has_own_scales(spec)) {
    fake_quantize_blocks(in, out, format(spec.format), shape, spec.axis, options_of(spec));
  } else {
    fake_quantize(in, out, shape, spec, choose_params(in, shape, spec));
  }
}

}  // namespace kaon
