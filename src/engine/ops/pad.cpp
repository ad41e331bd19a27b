#include <algorithm>
#include <numeric>

#include "engine/arith.h"
#include "engine/memory_guard.h"

namespace kaon {

namespace {

enum class PadMode { Constant, Reflect, Edge, Wrap };

PadMode pad_mode(const OpInfo& info) {
  const std::string mode = info.node().get_string("mode", "constant");
  if (mode == "constant") return PadMode::Constant;
  if (mode == "reflect") return PadMode::Reflect;
  if (mode == "edge") return PadMode::Edge;
  if (mode == "wrap") return PadMode::Wrap;
  info.unsupported("mode '" + mode + "'; constant, reflect, edge and wrap are known");
}

/// ATen lists pads from the last axis to the first, begin and end together.
std::vector<int64_t> aten_pads(at::IntArrayRef begin, at::IntArrayRef end) {
  std::vector<int64_t> pads;
  for (size_t i = begin.size(); i-- > 0;) pads.insert(pads.end(), {begin[i], end[i]});
  return pads;
}

/// Where each element of a padded axis comes from.
at::Tensor source_index(int64_t size, int64_t begin, int64_t end, PadMode mode, const at::TensorOptions& options) {
  if (size == 0) fail(ErrorCode::InvalidInput, "input 0", "an empty axis can be padded with a constant only");
  const at::Tensor position = at::arange(-begin, size + end, options.dtype(at::kLong));
  if (mode == PadMode::Edge) return position.clamp(0, size - 1);
  if (mode == PadMode::Wrap) return position.remainder(size);
  if (size == 1) return at::zeros_like(position);
  const at::Tensor folded = position.remainder(2 * (size - 1));
  return at::minimum(folded, 2 * (size - 1) - folded);
}

at::Tensor pad(at::Tensor x, std::vector<int64_t> begin, std::vector<int64_t> end, PadMode mode,
               const at::Scalar& value) {
  if (mode == PadMode::Constant) return at::constant_pad_nd(x, aten_pads(begin, end), value);
  for (size_t i = 0; i < begin.size(); ++i) {
    const auto axis = static_cast<int64_t>(i);
    // Negative pads cut first; what is left is then mirrored or repeated.
    const int64_t cut_begin = std::max<int64_t>(-begin[i], 0);
    const int64_t cut_end = std::max<int64_t>(-end[i], 0);
    if (cut_begin + cut_end > 0) x = x.narrow(axis, cut_begin, x.size(axis) - cut_begin - cut_end);
    begin[i] = std::max<int64_t>(begin[i], 0);
    end[i] = std::max<int64_t>(end[i], 0);
    if (begin[i] + end[i] > 0) {
      x = x.index_select(axis, source_index(x.size(axis), begin[i], end[i], mode, x.options()));
    }
  }
  return x;
}

Kernel make_pad(const OpInfo& info) {
  const PadMode mode = pad_mode(info);
  const bool as_inputs = info.opset() >= 11;
  const std::vector<int64_t> fixed = info.node().get_ints(info.opset() < 2 ? "paddings" : "pads");
  const float fixed_value = info.node().get_float("value", 0);
  return [mode, as_inputs, fixed, fixed_value](Call& call) {
    const at::Tensor& x = call.in(0);
    const std::vector<int64_t> pads = as_inputs ? call.sizes(1) : fixed;
    std::vector<int64_t> axes(static_cast<size_t>(x.dim()));
    std::iota(axes.begin(), axes.end(), 0);
    if (as_inputs && call.has(3)) axes = call.ints(3);
    if (pads.size() != 2 * axes.size()) {
      fail(ErrorCode::InvalidInput, "pads", "{} values are given for {} axes, two each are needed", pads.size(),
           axes.size());
    }
    std::vector<int64_t> begin(static_cast<size_t>(x.dim()));
    std::vector<int64_t> end = begin;
    for (size_t i = 0; i < axes.size(); ++i) {
      const auto axis = static_cast<size_t>(wrap_axis(axes[i], x.dim()));
      begin[axis] = pads[i];
      end[axis] = pads[i + axes.size()];
    }
    std::vector<int64_t> shape = x.sizes().vec();
    for (size_t i = 0; i < shape.size(); ++i) shape[i] += begin[i] + end[i];
    require_room(shape, static_cast<int64_t>(x.element_size()));
    at::Scalar value = fixed_value;
    if (as_inputs) value = call.has(2) && call.in(2).numel() > 0 ? call.in(2).reshape({-1})[0].item() : at::Scalar(0);
    call.out(0, Value{pad(x, begin, end, mode, value), call.type(0)});
  };
}

Kernel make_center_crop_pad(const OpInfo& info) {
  const std::vector<int64_t> fixed_axes = info.node().get_ints("axes");
  return [fixed_axes](Call& call) {
    const at::Tensor& x = call.in(0);
    const std::vector<int64_t> shape = call.sizes(1);
    std::vector<int64_t> axes = fixed_axes;
    if (axes.empty()) {
      axes.resize(static_cast<size_t>(x.dim()));
      std::iota(axes.begin(), axes.end(), 0);
    }
    if (axes.size() != shape.size()) {
      fail(ErrorCode::InvalidInput, "shape", "{} does not give one size for each of {} axes", to_string(shape),
           axes.size());
    }
    std::vector<int64_t> begin(static_cast<size_t>(x.dim()));
    std::vector<int64_t> end = begin;
    for (size_t i = 0; i < axes.size(); ++i) {
      const int64_t axis = wrap_axis(axes[i], x.dim());
      // Of an odd difference the larger half lies at the end, whether it is added or cut.
      const int64_t grow = shape[i] - x.size(axis);
      begin[static_cast<size_t>(axis)] = grow / 2;
      end[static_cast<size_t>(axis)] = grow - grow / 2;
    }
    call.out(0, Value{at::constant_pad_nd(x, aten_pads(begin, end), 0), call.type(0)});
  };
}

/// Sums sliding blocks back into an image of any number of axes: every column element is added at its place in the
/// padded image, which is then cut.
Kernel make_col2im(const OpInfo& info) {
  const Node& node = info.node();
  return [dilations = node.get_ints("dilations"), pads = node.get_ints("pads"),
          strides = node.get_ints("strides")](Call& call) {
    const at::Tensor x = widen(call.in(0));
    const std::vector<int64_t> image = call.sizes(1);
    const std::vector<int64_t> block = call.sizes(2);
    const size_t rank = image.size();
    const auto of = [](const std::vector<int64_t>& values, size_t i, int64_t otherwise) {
      return i < values.size() ? values[i] : otherwise;
    };
    if (x.dim() != 3 || block.size() != rank || rank == 0) {
      fail(ErrorCode::InvalidInput, "input 0", "its shape {} must be [batch, channels x block, blocks]",
           to_string(x.sizes()));
    }
    std::vector<int64_t> cut_begin;
    std::vector<int64_t> cut_end;
    std::vector<int64_t> padded;
    std::vector<int64_t> positions;
    for (size_t i = 0; i < rank; ++i) {
      const int64_t begin = of(pads, i, 0);
      const int64_t end = of(pads, i + rank, 0);
      const int64_t stride = of(strides, i, 1);
      const int64_t dilation = of(dilations, i, 1);
      const int64_t size = image[i] + begin + end;
      const int64_t reach = dilation * (block[i] - 1) + 1;
      if (size < reach || stride < 1 || dilation < 1 || block[i] < 1) {
        fail(ErrorCode::InvalidInput, "block_shape", "a block reaches over {} of {} elements", reach, size);
      }
      padded.push_back(size);
      positions.push_back((size - reach) / stride + 1);
      cut_begin.push_back(-begin);
      cut_end.push_back(-end);
    }
    if (x.size(1) % element_count(block) != 0 || x.size(2) != element_count(positions)) {
      fail(ErrorCode::InvalidInput, "input 0", "its shape {} does not hold {} positions of blocks of {} elements",
           to_string(x.sizes()), element_count(positions), element_count(block));
    }
    at::Tensor index = at::zeros({1, 1}, x.options().dtype(at::kLong));  // [block elements, block positions]
    for (size_t i = 0; i < rank; ++i) {
      const at::Tensor inside = at::arange(block[i], index.options()) * of(dilations, i, 1);
      const at::Tensor starts = at::arange(positions[i], index.options()) * of(strides, i, 1);
      const at::Tensor place = inside.view({1, -1, 1, 1}) + starts.view({1, 1, 1, -1});
      index = (index.view({index.size(0), 1, index.size(1), 1}) * padded[i] + place)
                  .reshape({index.size(0) * inside.size(0), index.size(1) * starts.size(0)});
    }
    const int64_t n = x.size(0);
    const int64_t channels = x.size(1) / index.size(0);
    const at::Tensor columns = x.reshape({n, channels, index.numel()});
    const int64_t area = element_count(padded);
    require_room({{n, channels, area}});
    const at::Tensor sum =
        at::zeros({n, channels, area}, x.options()).scatter_add(2, index.view({1, 1, -1}).expand_as(columns), columns);
    std::vector<int64_t> shape{n, channels};
    shape.insert(shape.end(), padded.begin(), padded.end());
    call.out(0, at::constant_pad_nd(sum.view(shape), aten_pads(cut_begin, cut_end), 0), call.type(0));
  };
}

bool pads_with_zero(const NodeView& view) {
  if (view.node.get_string("mode", "constant") != "constant") return true;
  if (!view.has(2)) return view.node.get_float("value", 0) == 0;
  const std::optional<Tensor> value = view.constant(2);
  return value && value->size() == 1 && value->to_float()[0] == 0;
}

void decide_pad(const NodeView& view, OpFacts& facts) {
  if (!pads_with_zero(view)) {
    facts.flow = FlowKind::Other;
    facts.homogeneous = Homogeneous::No;
  }
  const std::optional<std::vector<int64_t>> pads = view.ints("pads", 1);
  if (!pads || view.has(3)) return;
  const auto untouched = [&](size_t axis) {
    return axis < pads->size() / 2 && (*pads)[axis] == 0 && (*pads)[axis + pads->size() / 2] == 0;
  };
  if (untouched(0)) facts.samples = Samples::First;
  if (untouched(1) && facts.homogeneous == Homogeneous::Tensor) facts.homogeneous = Homogeneous::Channels;
}

}  // namespace

void register_pad(OpRegistry& ops) {
  ops.add("Pad", make_pad, moving({1, 3}).where(decide_pad));
  ops.add("CenterCropPad", make_center_crop_pad, fixed_shape({1}));
  ops.add("Col2Im", make_col2im, fixed_shape({1, 2}));
}

}  // namespace kaon
