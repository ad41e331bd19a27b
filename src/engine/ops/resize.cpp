#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>

#include "engine/arith.h"
#include "engine/memory_guard.h"

namespace kaon {

namespace {

enum class Interpolation { Nearest, Linear, Cubic };

/// One axis of a resize: how long it was and becomes, and which part of it is looked at.
struct ResizedAxis {
  int64_t axis = 0;
  int64_t input = 0;
  int64_t output = 0;
  float scale = 1;
  float roi_start = 0;
  float roi_end = 1;
};

/// The place in the input that output element x is taken from.
using Coordinate = std::function<float(float x, const ResizedAxis&)>;
/// The element nearest to a place; `down` tells that the axis shrinks.
using Nearest = std::function<float(float x, bool down)>;

float half_pixel(float x, const ResizedAxis& axis) { return (x + 0.5F) / axis.scale - 0.5F; }
float asymmetric(float x, const ResizedAxis& axis) { return x / axis.scale; }

float align_corners(float x, const ResizedAxis& axis) {
  return axis.output == 1 ? 0 : x * static_cast<float>(axis.input - 1) / static_cast<float>(axis.output - 1);
}

float crop_and_resize(float x, const ResizedAxis& axis) {
  const auto last = static_cast<float>(axis.input - 1);
  if (axis.output == 1) return 0.5F * (axis.roi_start + axis.roi_end) * last;
  return axis.roi_start * last + x * (axis.roi_end - axis.roi_start) * last / static_cast<float>(axis.output - 1);
}

float half_pixel_symmetric(float x, const ResizedAxis& axis) {
  const auto input = static_cast<float>(axis.input);
  const float adjustment = static_cast<float>(axis.output) / (axis.scale * input);
  return input / 2 * (1 - adjustment) + (x + 0.5F) / axis.scale - 0.5F;
}

Coordinate coordinate_named(const OpInfo& info, const std::string& name) {
  if (name == "half_pixel") return half_pixel;
  if (name == "asymmetric") return asymmetric;
  if (name == "align_corners") return align_corners;
  if (name == "tf_crop_and_resize") return crop_and_resize;
  if (name == "half_pixel_symmetric") return half_pixel_symmetric;
  if (name == "pytorch_half_pixel") {
    return [](float x, const ResizedAxis& axis) { return axis.output > 1 ? half_pixel(x, axis) : 0; };
  }
  if (name == "tf_half_pixel_for_nn") {
    return [](float x, const ResizedAxis& axis) { return (x + 0.5F) / axis.scale; };
  }
  info.unsupported("coordinate_transformation_mode '" + name + "' is none that ONNX defines");
}

Nearest nearest_named(const OpInfo& info, const std::string& name) {
  if (name == "round_prefer_floor") return [](float x, bool) { return std::ceil(x - 0.5F); };
  if (name == "round_prefer_ceil") return [](float x, bool) { return std::round(x); };  // places below 0 are clamped
  if (name == "floor") return [](float x, bool) { return std::floor(x); };
  if (name == "ceil") return [](float x, bool) { return std::ceil(x); };
  info.unsupported("nearest_mode '" + name + "'; round_prefer_floor, round_prefer_ceil, floor and ceil are known");
}

struct ResizeAttributes {
  Interpolation mode = Interpolation::Nearest;
  std::string coordinates = "asymmetric";
  Coordinate coordinate = asymmetric;
  // Before the attribute existed, runtimes cut when growing and rounded up when shrinking.
  Nearest nearest = [](float x, bool down) { return down ? std::ceil(x) : std::trunc(x); };
  float cubic_a = -0.75F;
  float extrapolation = 0;
  bool exclude_outside = false;
  bool antialias = false;
  bool crops() const { return coordinates == "tf_crop_and_resize"; }
};

Interpolation interpolation_named(const OpInfo& info, const std::string& name) {
  if (name == "nearest") return Interpolation::Nearest;
  if (name == "linear" || name == "bilinear") return Interpolation::Linear;
  if (name == "cubic") return Interpolation::Cubic;
  info.unsupported("mode '" + name + "'; nearest, linear and cubic are known");
}

float cubic_weight(float distance, float a) {
  const float x = std::abs(distance);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

/// For every output element of an axis, the input elements it is made of and their weights.
struct Taps {
  int64_t count = 0;           ///< for each element
  std::vector<int64_t> index;  ///< [count, output]
  std::vector<float> weight;   ///< [count, output]
};

Taps find_taps(const ResizedAxis& axis, const ResizeAttributes& attributes) {
  // Without antialiasing the filter spans the neighbours; with it, a shrinking axis stretches the filter.
  const float stretch = attributes.antialias ? std::min(axis.scale, 1.0F) : 1;
  const float support = (attributes.mode == Interpolation::Linear ? 1.0F : 2.0F) / stretch;
  const auto first = static_cast<int64_t>(std::floor(-support)) + 1;
  Taps taps;
  taps.count = 2 * (1 - first);
  require_room({{taps.count, axis.output}}, sizeof(int64_t) + sizeof(float));
  const auto size = static_cast<size_t>(taps.count * axis.output);
  taps.index.resize(size);
  taps.weight.resize(size);
  for (int64_t o = 0; o < axis.output; ++o) {
    const float place = attributes.coordinate(static_cast<float>(o), axis);
    const float base = std::floor(place);
    const float ratio = place - base;
    float sum = 0;
    for (int64_t t = 0; t < taps.count; ++t) {
      const int64_t source = static_cast<int64_t>(base) + first + t;
      const float distance = (static_cast<float>(first + t) - ratio) * stretch;
      float weight = attributes.mode == Interpolation::Linear ? std::max(0.0F, 1 - std::abs(distance))
                                                              : cubic_weight(distance, attributes.cubic_a);
      if (attributes.exclude_outside && (source < 0 || source >= axis.input)) weight = 0;
      const auto slot = static_cast<size_t>(t * axis.output + o);
      taps.index[slot] = std::clamp<int64_t>(source, 0, axis.input - 1);
      taps.weight[slot] = weight;
      sum += weight;
    }
    if (!attributes.antialias && !attributes.exclude_outside) continue;
    for (int64_t t = 0; t < taps.count; ++t) taps.weight[static_cast<size_t>(t * axis.output + o)] /= sum;
  }
  return taps;
}

at::Tensor interpolate(const at::Tensor& x, const ResizedAxis& axis, const ResizeAttributes& attributes) {
  const Taps taps = find_taps(axis, attributes);
  const at::Tensor index = at::tensor(taps.index, at::kLong).reshape({taps.count, -1}).to(x.device());
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()) + 1, 1);
  shape[0] = taps.count;
  shape[static_cast<size_t>(axis.axis) + 1] = axis.output;
  const at::Tensor weight = at::tensor(taps.weight, at::kFloat).reshape(shape).to(x.options());
  at::Tensor sum;
  for (int64_t t = 0; t < taps.count; ++t) {
    const at::Tensor part = x.index_select(axis.axis, index[t]) * weight[t];
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

std::vector<int64_t> nearest_index(const ResizedAxis& axis, const ResizeAttributes& attributes) {
  std::vector<int64_t> index(static_cast<size_t>(axis.output));
  for (size_t o = 0; o < index.size(); ++o) {
    const float place = attributes.nearest(attributes.coordinate(static_cast<float>(o), axis), axis.scale < 1);
    index[o] = static_cast<int64_t>(std::clamp(place, 0.0F, static_cast<float>(axis.input - 1)));
  }
  return index;
}

/// Whether every element is repeated 2, 4, 8 … times: then ATen's float arithmetic finds the same elements.
bool repeats_evenly(const std::vector<int64_t>& index, int64_t input) {
  const auto output = std::ssize(index);
  if (output % input != 0 || !std::has_single_bit(static_cast<uint64_t>(output / input))) return false;
  const int64_t times = output / input;
  for (int64_t i = 0; i < output; ++i) {
    if (index[static_cast<size_t>(i)] != i / times) return false;
  }
  return true;
}

at::Tensor pick_nearest(const at::Tensor& x, const std::vector<ResizedAxis>& axes, const ResizeAttributes& attributes) {
  const int64_t first = axes.front().axis, last = axes.back().axis;
  std::vector<std::vector<int64_t>> picks(static_cast<size_t>(x.dim()));
  for (const ResizedAxis& axis : axes) picks[static_cast<size_t>(axis.axis)] = nearest_index(axis, attributes);
  if (x.dim() == 4 && first == 2 && axes.size() == 2 && x.scalar_type() == at::kFloat &&
      repeats_evenly(picks[2], x.size(2)) && repeats_evenly(picks[3], x.size(3))) {
    return at::upsample_nearest2d(x, {axes[0].output, axes[1].output});
  }
  c10::List<c10::optional<at::Tensor>> indices;
  for (int64_t i = 0; i <= last; ++i) {
    if (i < first) {
      indices.push_back(c10::nullopt);
      continue;
    }
    // Indexed axes must lie together to stay where they are, so those between are picked whole.
    std::vector<int64_t>& pick = picks[static_cast<size_t>(i)];
    if (pick.empty()) {
      pick.resize(static_cast<size_t>(x.size(i)));
      std::iota(pick.begin(), pick.end(), 0);
    }
    std::vector<int64_t> shape(static_cast<size_t>(last - first + 1), 1);
    shape[static_cast<size_t>(i - first)] = std::ssize(pick);
    indices.push_back(at::tensor(pick, at::kLong).reshape(shape).to(x.device()));
  }
  return at::index(x, indices);
}

/// ATen's own interpolation where it computes what ONNX asks for; nothing elsewhere.
std::optional<at::Tensor> interpolate_fused(const at::Tensor& x, const std::vector<ResizedAxis>& axes,
                                            const ResizeAttributes& attributes) {
  const bool corners = attributes.coordinates == "align_corners";
  const bool same_coordinates =
      corners || attributes.coordinates == "half_pixel" ||
      (attributes.coordinates == "pytorch_half_pixel" &&
       std::all_of(axes.begin(), axes.end(), [](const ResizedAxis& axis) { return axis.output > 1; }));
  if (!same_coordinates || attributes.antialias || attributes.exclude_outside || x.dim() != 4 || axes.size() != 2 ||
      axes[0].axis != 2) {
    return std::nullopt;
  }
  const std::vector<int64_t> size{axes[0].output, axes[1].output};
  if (attributes.mode == Interpolation::Linear) {
    return at::upsample_bilinear2d(x, size, corners, axes[0].scale, axes[1].scale);
  }
  if (attributes.cubic_a != -0.75F) return std::nullopt;
  return at::upsample_bicubic2d(x, size, corners, axes[0].scale, axes[1].scale);
}

/// Output elements whose place lies outside the input become the extrapolation value.
at::Tensor extrapolate(at::Tensor y, const std::vector<ResizedAxis>& axes, const ResizeAttributes& attributes) {
  for (const ResizedAxis& axis : axes) {
    const at::Tensor outside = at::zeros(axis.output, at::kBool);
    bool* is_outside = outside.data_ptr<bool>();
    for (int64_t o = 0; o < axis.output; ++o) {
      const float place = attributes.coordinate(static_cast<float>(o), axis);
      is_outside[o] = place < 0 || place > static_cast<float>(axis.input - 1);
    }
    std::vector<int64_t> shape(static_cast<size_t>(y.dim()), 1);
    shape[static_cast<size_t>(axis.axis)] = axis.output;
    y = y.masked_fill(outside.reshape(shape).to(y.device()), attributes.extrapolation);
  }
  return y;
}

at::Tensor resize(const at::Tensor& input, const std::vector<ResizedAxis>& wanted, const ResizeAttributes& attributes) {
  std::vector<ResizedAxis> axes;
  for (const ResizedAxis& axis : wanted) {
    const bool whole = !attributes.crops() || (axis.roi_start == 0 && axis.roi_end == 1);
    if (axis.scale == 1 && axis.output == axis.input && whole) continue;
    if (axis.input < 1 || axis.output < 0) {
      fail(ErrorCode::InvalidInput, "input 0", "axis {} cannot be resized from {} to {}", axis.axis, axis.input,
           axis.output);
    }
    axes.push_back(axis);
  }
  if (axes.empty()) return input;
  std::vector<int64_t> shape = input.sizes().vec();
  for (const ResizedAxis& axis : axes) shape[static_cast<size_t>(axis.axis)] = axis.output;
  require_room(shape, static_cast<int64_t>(input.element_size()));
  if (element_count(shape) == 0) return at::empty(shape, input.options());
  std::sort(axes.begin(), axes.end(), [](const auto& a, const auto& b) { return a.axis < b.axis; });
  at::Tensor y;
  if (attributes.mode == Interpolation::Nearest) {
    y = pick_nearest(input, axes, attributes);
  } else {
    const at::Tensor x = at::isFloatingType(input.scalar_type()) ? widen(input) : input.to(at::kFloat);
    if (const std::optional<at::Tensor> fused = interpolate_fused(x, axes, attributes)) {
      y = *fused;
    } else {
      y = x;
      for (const ResizedAxis& axis : axes) y = interpolate(y, axis, attributes);
    }
    if (!at::isFloatingType(input.scalar_type()) && attributes.antialias) y = y.round();
  }
  return attributes.crops() ? extrapolate(y, axes, attributes) : y;
}

std::vector<float> floats_of(const Call& call, size_t input) {
  if (!call.has(input)) return {};
  const at::Tensor flat = call.in(input).to(at::kCPU, at::kFloat).contiguous();
  return {flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel()};
}

/// The axes a resize is about, in the order its scales, sizes and region are given.
std::vector<ResizedAxis> listed_axes(const at::Tensor& x, const std::vector<int64_t>& axes) {
  std::vector<ResizedAxis> list(axes.empty() ? static_cast<size_t>(x.dim()) : axes.size());
  for (size_t i = 0; i < list.size(); ++i) {
    list[i].axis = axes.empty() ? static_cast<int64_t>(i) : wrap_axis(axes[i], x.dim());
    list[i].input = x.size(list[i].axis);
  }
  return list;
}

void require_count(size_t given, size_t wanted, const char* what) {
  if (given != wanted) fail(ErrorCode::InvalidInput, what, "{} are given for {} axes", given, wanted);
}

void apply_scales(std::vector<ResizedAxis>& axes, const std::vector<float>& scales) {
  require_count(scales.size(), axes.size(), "scales");
  for (size_t i = 0; i < axes.size(); ++i) {
    if (!(scales[i] > 0) || !std::isfinite(scales[i])) {
      fail(ErrorCode::InvalidInput, "scales", "{} is not a positive number", scales[i]);
    }
    axes[i].scale = scales[i];
    if (static_cast<float>(axes[i].input) * scales[i] > static_cast<float>(kLargestSize)) {
      fail(ErrorCode::InvalidInput, "scales", "{} times {} elements are too many", scales[i], axes[i].input);
    }
    axes[i].output = static_cast<int64_t>(std::floor(static_cast<float>(axes[i].input) * scales[i]));
  }
}

enum class AspectRatio { Stretch, NotLarger, NotSmaller };

void apply_sizes(std::vector<ResizedAxis>& axes, const std::vector<int64_t>& sizes, AspectRatio policy) {
  require_count(sizes.size(), axes.size(), "sizes");
  for (size_t i = 0; i < axes.size(); ++i) {
    axes[i].output = sizes[i];
    axes[i].scale = static_cast<float>(sizes[i]) / static_cast<float>(axes[i].input);
  }
  if (policy == AspectRatio::Stretch || axes.empty()) return;
  const auto by_scale = [](const ResizedAxis& a, const ResizedAxis& b) { return a.scale < b.scale; };
  const float scale = policy == AspectRatio::NotLarger ? std::min_element(axes.begin(), axes.end(), by_scale)->scale
                                                       : std::max_element(axes.begin(), axes.end(), by_scale)->scale;
  for (ResizedAxis& axis : axes) {
    axis.scale = scale;
    axis.output = static_cast<int64_t>(std::floor(scale * static_cast<float>(axis.input) + 0.5F));
  }
}

AspectRatio aspect_ratio(const OpInfo& info) {
  const std::string name = info.node().get_string("keep_aspect_ratio_policy", "stretch");
  if (name == "stretch") return AspectRatio::Stretch;
  if (name == "not_larger") return AspectRatio::NotLarger;
  if (name == "not_smaller") return AspectRatio::NotSmaller;
  info.unsupported("keep_aspect_ratio_policy '" + name + "'; stretch, not_larger and not_smaller are known");
}

Kernel make_resize(const OpInfo& info) {
  const Node& node = info.node();
  ResizeAttributes attributes;
  attributes.mode = interpolation_named(info, node.get_string("mode", "nearest"));
  const bool only_scales = info.opset() < 11;
  if (!only_scales) {
    attributes.coordinates = node.get_string("coordinate_transformation_mode", "half_pixel");
    attributes.coordinate = coordinate_named(info, attributes.coordinates);
    attributes.nearest = nearest_named(info, node.get_string("nearest_mode", "round_prefer_floor"));
    attributes.cubic_a = node.get_float("cubic_coeff_a", -0.75F);
    attributes.extrapolation = node.get_float("extrapolation_value", 0);
    attributes.exclude_outside = node.get_int("exclude_outside", 0) != 0;
    attributes.antialias = node.get_int("antialias", 0) != 0;
  }
  return [attributes, only_scales, listed = node.get_ints("axes"), policy = aspect_ratio(info)](Call& call) {
    std::vector<ResizedAxis> axes = listed_axes(call.in(0), listed);
    const std::vector<float> scales = floats_of(call, only_scales ? 1 : 2);
    if (only_scales || !scales.empty()) {
      apply_scales(axes, scales);
    } else {
      apply_sizes(axes, call.sizes(3), policy);
    }
    const std::vector<float> roi = attributes.crops() ? floats_of(call, 1) : std::vector<float>();
    if (attributes.crops()) require_count(roi.size(), 2 * axes.size(), "roi");
    for (size_t i = 0; i < roi.size() / 2; ++i) {
      axes[i].roi_start = roi[i];
      axes[i].roi_end = roi[i + axes.size()];
    }
    call.out(0, resize(call.in(0), axes, attributes), call.type(0));
  };
}

Kernel make_upsample(const OpInfo& info) {
  const Node& node = info.node();
  ResizeAttributes attributes;
  attributes.mode = interpolation_named(info, node.get_string("mode", "nearest"));
  std::vector<float> fixed;
  if (const auto* scales = node.get_if<std::vector<float>>("scales")) {
    fixed = *scales;
  } else if (node.find("height_scale") != nullptr) {
    fixed = {1, 1, node.get_float("height_scale", 1), node.get_float("width_scale", 1)};
  }
  return [attributes, fixed](Call& call) {
    std::vector<ResizedAxis> axes = listed_axes(call.in(0), {});
    apply_scales(axes, fixed.empty() ? floats_of(call, 1) : fixed);
    call.out(0, resize(call.in(0), axes, attributes), call.type(0));
  };
}

Kernel make_grid_sample(const OpInfo& info) {
  const Node& node = info.node();
  const std::string mode = node.get_string("mode", info.opset() < 20 ? "bilinear" : "linear");
  const std::string padding = node.get_string("padding_mode", "zeros");
  const bool corners = node.get_int("align_corners", 0) != 0;
  int64_t how = 0;
  if (mode == "nearest") {
    how = 1;
  } else if (mode == "bicubic" || mode == "cubic") {
    how = 2;
  } else if (mode != "bilinear" && mode != "linear") {
    info.unsupported("mode '" + mode + "'; linear, nearest and cubic are known");
  }
  const std::vector<std::string> paddings{"zeros", "border", "reflection"};
  const auto found = std::find(paddings.begin(), paddings.end(), padding);
  if (found == paddings.end()) info.unsupported("padding_mode '" + padding + "' is none that ONNX defines");
  return [how, around = found - paddings.begin(), corners](Call& call) {
    const at::Tensor x = widen(call.in(0));
    const at::Tensor grid = call.in(1).to(x.scalar_type());
    call.out(0, at::grid_sampler(x, grid, how, around, corners), call.type(0));
  };
}

Kernel make_affine_grid(const OpInfo& info) {
  const bool corners = info.node().get_int("align_corners", 0) != 0;
  return [corners](Call& call) {
    const std::vector<int64_t> sizes = call.sizes(1);
    require_room(sizes, static_cast<int64_t>(sizes.size() * sizeof(float)));
    call.out(0, at::affine_grid_generator(widen(call.in(0)), sizes, corners), call.type(0));
  };
}

void decide_resize(const NodeView& view, OpFacts& facts) {
  if (view.node.get_string("mode", "nearest") == "nearest") return;
  facts.flow = FlowKind::Other;
  facts.homogeneous = Homogeneous::No;
}

}  // namespace

void register_resize(OpRegistry& ops) {
  ops.add("Resize", make_resize, moving({1, 2, 3}).where(decide_resize));
  ops.add("Upsample", make_upsample, moving({1}).where(decide_resize));
  ops.add("GridSample", make_grid_sample, fixed_shape());
  ops.add("AffineGrid", make_affine_grid, fixed_shape({1}));
}

}  // namespace kaon
