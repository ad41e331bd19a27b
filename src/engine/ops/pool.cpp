#include <algorithm>
#include <limits>
#include <numeric>

#include "engine/arith.h"
#include "engine/memory_guard.h"
#include "engine/spatial.h"

namespace kaon {

namespace {

std::vector<int64_t> spatial_axes(const at::Tensor& x) {
  if (x.dim() < 3) fail(ErrorCode::InvalidInput, "input 0", "its rank is {}, at least 3 is needed", x.dim());
  std::vector<int64_t> axes(static_cast<size_t>(x.dim()) - 2);
  std::iota(axes.begin(), axes.end(), 2);
  return axes;
}

/// Throws where ATen has no pool of this rank, and where a number in the file asks for endless work.
void require_poolable(const SlidingWindow& window, const at::Tensor& x) {
  constexpr double kAlways = 1e9;   // comparisons that any pool may take
  constexpr double kWindow = 4096;  // elements of a window, on average, beyond that
  if (window.rank() > 3) {
    fail(ErrorCode::Unsupported, "input 0", "it has {} spatial axes; pools run over 1 to 3", window.rank());
  }
  std::vector<int64_t> padded{x.size(0), x.size(1)};
  double elements = 1, work = 1;
  for (size_t i = 0; i < window.rank(); ++i) {
    if (std::max(window.begin[i], window.end[i]) >= window.reach(i)) {
      fail(ErrorCode::InvalidInput, "pads", "{} and {} must be less than the window's {} elements", window.begin[i],
           window.end[i], window.reach(i));
    }
    padded.push_back(window.input[i] + std::max<int64_t>(window.begin[i], 0) + std::max<int64_t>(window.end[i], 0));
    elements *= static_cast<double>(window.output[i] + window.input[i]);
    work *= static_cast<double>(window.output[i]) * static_cast<double>(window.kernel[i]);
  }
  require_room(padded);
  const auto planes = static_cast<double>(x.size(0) * x.size(1));
  if (planes * work > std::max(kAlways, kWindow * planes * elements)) {
    fail(ErrorCode::InvalidInput, "kernel_shape", "windows of {} elements at {} places take too long",
         to_string(window.kernel), to_string(window.output));
  }
}

/// ATen's pools take pads up to half the kernel.
bool fits_aten(const SlidingWindow& window, bool ceil) {
  if (ceil || !window.symmetric()) return false;
  for (size_t i = 0; i < window.rank(); ++i) {
    if (window.begin[i] < 0 || window.begin[i] > window.kernel[i] / 2) return false;
  }
  return true;
}

/// What must stand behind the input for the last window to be whole.
std::vector<int64_t> needed_end(const SlidingWindow& window) {
  std::vector<int64_t> end(window.rank());
  for (size_t i = 0; i < window.rank(); ++i) {
    const int64_t needed = (window.output[i] - 1) * window.strides[i] + window.reach(i);
    end[i] = std::max(window.end[i], needed - window.input[i] - window.begin[i]);
  }
  return end;
}

std::tuple<at::Tensor, at::Tensor> aten_max_pool(const at::Tensor& x, const SlidingWindow& window,
                                                 at::IntArrayRef pads) {
  switch (window.rank()) {
    case 1: return at::max_pool1d_with_indices(x, window.kernel, window.strides, pads, window.dilations);
    case 2: return at::max_pool2d_with_indices(x, window.kernel, window.strides, pads, window.dilations);
    default: return at::max_pool3d_with_indices(x, window.kernel, window.strides, pads, window.dilations);
  }
}

/// ATen's index into one padded image, as ONNX's into the whole unpadded tensor.
at::Tensor whole_index(const at::Tensor& in_image, const SlidingWindow& window, at::IntArrayRef begin,
                       at::IntArrayRef end, bool column_major) {
  at::Tensor rest = in_image;
  at::Tensor index = at::zeros_like(in_image);
  const int64_t area = std::accumulate(window.input.begin(), window.input.end(), int64_t{1}, std::multiplies<>());
  int64_t stride = column_major ? area : 1;
  for (size_t i = window.rank(); i-- > 0;) {
    const int64_t padded = window.input[i] + begin[i] + end[i];
    if (column_major) stride /= window.input[i];
    index = index + (rest.remainder(padded) - begin[i]) * stride;
    if (!column_major) stride *= window.input[i];
    rest = rest.div(padded, "floor");
  }
  std::vector<int64_t> planes(static_cast<size_t>(in_image.dim()), 1);
  planes[0] = in_image.size(0);
  planes[1] = in_image.size(1);
  return index + at::arange(planes[0] * planes[1], in_image.options()).reshape(planes) * area;
}

void max_pool(Call& call, const WindowAttributes& attributes, bool column_major) {
  const at::Tensor& input = call.in(0);
  const at::Tensor x = at::isFloatingType(input.scalar_type()) ? widen(input) : input.to(at::kFloat);
  const SlidingWindow window = slide(attributes, x.sizes(), attributes.kernel);
  require_poolable(window, x);
  const std::vector<int64_t> zeros(window.rank(), 0);
  if (fits_aten(window, attributes.ceil)) {
    const auto [y, index] = aten_max_pool(x, window, window.begin);
    call.out(0, y, call.type(0));
    if (call.wants(1)) call.out(1, whole_index(index, window, zeros, zeros, column_major));
    return;
  }
  const std::vector<int64_t> end = needed_end(window);
  const at::Tensor padded = pad_spatial(x, window.begin, end, -std::numeric_limits<double>::infinity());
  const auto [y, index] = aten_max_pool(padded, window, zeros);
  call.out(0, y, call.type(0));
  if (call.wants(1)) call.out(1, whole_index(index, window, window.begin, end, column_major));
}

Kernel make_max_pool(const OpInfo& info) {
  const bool column_major = info.node().get_int("storage_order", 0) != 0;
  return [attributes = window_attributes(info.node()), column_major](Call& call) {
    max_pool(call, attributes, column_major);
  };
}

/// The sum over every window, zeros around the input.
at::Tensor window_sum(const at::Tensor& x, const SlidingWindow& window) {
  const at::Tensor padded = pad_spatial(x, window.begin, needed_end(window), 0);
  const std::vector<int64_t> zeros(window.rank(), 0);
  if (std::any_of(window.dilations.begin(), window.dilations.end(), [](int64_t dilation) { return dilation > 1; })) {
    std::vector<int64_t> planes = padded.sizes().vec();
    planes[0] *= planes[1];
    planes[1] = 1;
    std::vector<int64_t> kernel{1, 1};
    kernel.insert(kernel.end(), window.kernel.begin(), window.kernel.end());
    const at::Tensor sum = at::convolution(padded.reshape(planes), at::ones(kernel, x.options()), {}, window.strides,
                                           zeros, window.dilations, /*transposed=*/false, zeros, 1);
    std::vector<int64_t> shape = sum.sizes().vec();
    shape[0] = x.size(0);
    shape[1] = x.size(1);
    return sum.reshape(shape);
  }
  switch (window.rank()) {
    case 1:
      return at::avg_pool2d(padded.unsqueeze(-1), {window.kernel[0], 1}, {window.strides[0], 1}, 0, false, true, 1)
          .squeeze(-1);
    case 2: return at::avg_pool2d(padded, window.kernel, window.strides, 0, false, true, 1);
    default: return at::avg_pool3d(padded, window.kernel, window.strides, 0, false, true, 1);
  }
}

/// How many elements each window counts: those of the input, or of the padded input.
at::Tensor window_count(const SlidingWindow& window, bool include_pad, const at::TensorOptions& options) {
  at::Tensor count = at::ones({}, options);
  for (size_t i = 0; i < window.rank(); ++i) {
    const int64_t low = include_pad ? -window.begin[i] : 0;
    const int64_t high = window.input[i] + (include_pad ? window.end[i] : 0);
    std::vector<int64_t> counts(static_cast<size_t>(window.output[i]));
    for (size_t o = 0; o < counts.size(); ++o) {
      const int64_t start = static_cast<int64_t>(o) * window.strides[i] - window.begin[i];
      const int64_t step = window.dilations[i];
      const int64_t first = start >= low ? 0 : (low - start + step - 1) / step;
      const int64_t end = start >= high ? 0 : std::min(window.kernel[i], (high - start + step - 1) / step);
      counts[o] = std::max<int64_t>(end - first, 0);
    }
    count = count.unsqueeze(-1) * at::tensor(counts, at::kLong).to(options);
  }
  return count;
}

at::Tensor aten_average_pool(const at::Tensor& x, const SlidingWindow& window, bool include_pad) {
  switch (window.rank()) {
    case 1: return at::avg_pool1d(x, window.kernel, window.strides, window.begin, false, include_pad);
    case 2: return at::avg_pool2d(x, window.kernel, window.strides, window.begin, false, include_pad);
    default: return at::avg_pool3d(x, window.kernel, window.strides, window.begin, false, include_pad);
  }
}

Kernel make_average_pool(const OpInfo& info) {
  const bool include_pad = info.node().get_int("count_include_pad", 0) != 0;
  return [attributes = window_attributes(info.node()), include_pad](Call& call) {
    const at::Tensor x = widen(call.in(0));
    const SlidingWindow window = slide(attributes, x.sizes(), attributes.kernel);
    require_poolable(window, x);
    const bool dense = std::all_of(window.dilations.begin(), window.dilations.end(), [](int64_t d) { return d == 1; });
    at::Tensor y;
    if (dense && fits_aten(window, attributes.ceil)) {
      y = aten_average_pool(x, window, include_pad);
    } else {
      y = window_sum(x, window);
      y = y / window_count(window, include_pad, x.options());
    }
    call.out(0, y, call.type(0));
  };
}

/// Opset 1 stored p as a float.
double norm_order(const OpInfo& info) {
  if (const float* p = info.node().get_if<float>("p")) return *p;
  return static_cast<double>(info.node().get_int("p", 2));
}

Kernel make_lp_pool(const OpInfo& info) {
  return [attributes = window_attributes(info.node()), p = norm_order(info)](Call& call) {
    const at::Tensor x = widen(call.in(0));
    const SlidingWindow window = slide(attributes, x.sizes(), attributes.kernel);
    require_poolable(window, x);
    call.out(0, window_sum(x.abs().pow(p), window).pow(1 / p), call.type(0));
  };
}

void global_average_pool(Call& call) {
  const at::Tensor x = widen(call.in(0));
  call.out(0, x.mean(spatial_axes(x), /*keepdim=*/true), call.type(0));
}

void global_max_pool(Call& call) {
  const at::Tensor x = widen(call.in(0));
  call.out(0, x.amax(spatial_axes(x), /*keepdim=*/true), call.type(0));
}

Kernel make_global_lp_pool(const OpInfo& info) {
  return [p = norm_order(info)](Call& call) {
    const at::Tensor x = widen(call.in(0));
    call.out(0, x.abs().pow(p).sum(spatial_axes(x), /*keepdim=*/true).pow(1 / p), call.type(0));
  };
}

Kernel make_max_unpool(const OpInfo& info) {
  return [attributes = window_attributes(info.node())](Call& call) {
    const at::Tensor& x = call.in(0);
    const size_t rank = spatial_axes(x).size();
    const std::vector<int64_t> kernel = positive_or_ones(attributes.kernel, rank, "kernel_shape");
    const std::vector<int64_t> strides = positive_or_ones(attributes.strides, rank, "strides");
    const std::vector<int64_t> pads = attributes.pads.empty() ? std::vector<int64_t>(2 * rank) : attributes.pads;
    if (pads.size() != 2 * rank) fail(ErrorCode::InvalidInput, "pads", "{} spatial axes need {}", rank, 2 * rank);
    std::vector<int64_t> shape = x.sizes().vec();
    for (size_t i = 0; i < rank; ++i) {
      shape[2 + i] = (shape[2 + i] - 1) * strides[i] + kernel[i] - pads[i] - pads[i + rank];
    }
    // The indices count in the tensor that was pooled, whose shape is the given one where there is one.
    if (call.has(2)) shape = call.sizes(2);
    require_room(shape, static_cast<int64_t>(x.element_size()));
    const at::Tensor flat = at::zeros(element_count(shape), x.options());
    call.out(0, flat.scatter(0, call.in(1).to(at::kLong).reshape({-1}), x.reshape({-1})).reshape(shape), call.type(0));
  };
}

}  // namespace

void register_pool(OpRegistry& ops) {
  ops.add("MaxPool", make_max_pool, per_sample().with(Homogeneous::Channels).with(FlowKind::Moves));
  ops.add("AveragePool", make_average_pool, per_sample().with(Homogeneous::Channels).with(FlowKind::Computes));
  ops.add("LpPool", make_lp_pool, per_sample().with(Homogeneous::Channels));
  ops.add_simple("GlobalAveragePool", global_average_pool,
                 per_sample().with(Homogeneous::Channels).with(FlowKind::Computes));
  ops.add_simple("GlobalMaxPool", global_max_pool, per_sample().with(Homogeneous::Channels).with(FlowKind::Moves));
  ops.add("GlobalLpPool", make_global_lp_pool, per_sample().with(Homogeneous::Channels));
  ops.add("MaxUnpool", make_max_unpool, fixed_shape({2}));
}

}  // namespace kaon
