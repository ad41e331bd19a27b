#include <algorithm>
#include <ranges>

#include "engine/arith.h"

namespace kaon {

namespace {

using Axes = std::vector<int64_t>;
using Reduction = at::Tensor (*)(const at::Tensor&, const Axes&, bool keep);

at::Tensor total(const at::Tensor& x, const Axes& axes, bool keep) { return at::sum(x, axes, keep, x.scalar_type()); }

at::Tensor mean(const at::Tensor& x, const Axes& axes, bool keep) {
  return at::isFloatingType(x.scalar_type()) ? at::mean(x, axes, keep) : at::mean(x.to(at::kDouble), axes, keep);
}

at::Tensor product(const at::Tensor& x, const Axes& axes, bool keep) {
  at::Tensor out = x;
  // Axes come sorted; from the last to the first so that the others keep their place.
  for (const int64_t axis : std::views::reverse(axes)) out = at::prod(out, axis, keep, x.scalar_type());
  return out;
}

/// Of nothing, the number that every other would replace.
at::Tensor extreme(const at::Tensor& x, const Axes& axes, bool keep, bool largest) {
  if (x.numel() != 0) return largest ? at::amax(x, axes, keep) : at::amin(x, axes, keep);
  const at::Tensor shape_only = at::sum(x.to(at::kLong), axes, keep);
  const at::ScalarType type = x.scalar_type();
  if (at::isFloatingType(type)) {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    return at::full(shape_only.sizes(), largest ? -kInf : kInf, x.options());
  }
  const int64_t bits = 8 * static_cast<int64_t>(at::elementSize(type));
  const int64_t highest = type == at::kByte ? 255 : static_cast<int64_t>((uint64_t{1} << (bits - 1)) - 1);
  const int64_t lowest = type == at::kByte ? 0 : -highest - 1;
  return at::full(shape_only.sizes(), largest ? lowest : highest, x.options());
}

at::Tensor largest_of(const at::Tensor& x, const Axes& axes, bool keep) { return extreme(x, axes, keep, true); }
at::Tensor smallest_of(const at::Tensor& x, const Axes& axes, bool keep) { return extreme(x, axes, keep, false); }

at::Tensor as_float(const at::Tensor& x) { return at::isFloatingType(x.scalar_type()) ? x : x.to(at::kDouble); }

at::Tensor l1(const at::Tensor& x, const Axes& axes, bool keep) { return total(at::abs(x), axes, keep); }
at::Tensor sum_square(const at::Tensor& x, const Axes& axes, bool keep) { return total(x * x, axes, keep); }
at::Tensor l2(const at::Tensor& x, const Axes& axes, bool keep) {
  return at::sqrt(sum_square(as_float(x), axes, keep));
}
at::Tensor log_sum(const at::Tensor& x, const Axes& axes, bool keep) { return at::log(total(as_float(x), axes, keep)); }
at::Tensor log_sum_exp(const at::Tensor& x, const Axes& axes, bool keep) {
  const at::Tensor floats = as_float(x);
  // ATen refuses an empty tensor and an empty list of axes.
  if (x.numel() == 0) return at::log(total(floats, axes, keep));
  return axes.empty() ? floats : at::logsumexp(floats, axes, keep);
}

/// Axes from the attribute, or from the second input since `axes_input_since`; sorted, from the front, each once.
class ReducedAxes {
 public:
  ReducedAxes(const OpInfo& info, int64_t axes_input_since)
      : from_input_(info.opset() >= axes_input_since),
        noop_when_empty_(from_input_ && info.node().get_int("noop_with_empty_axes", 0) != 0),
        attribute_(info.node().get_ints("axes")) {}

  Axes operator()(const Call& call) const {
    Axes axes = from_input_ ? (call.has(1) ? call.ints(1) : Axes{}) : attribute_;
    const int64_t rank = call.in(0).dim();
    if (axes.empty() && !noop_when_empty_) {
      for (int64_t i = 0; i < rank; ++i) axes.push_back(i);
    }
    for (int64_t& axis : axes) axis = wrap_axis(axis, rank);
    std::sort(axes.begin(), axes.end());
    axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
    return axes;
  }

 private:
  bool from_input_;
  bool noop_when_empty_;
  Axes attribute_;
};

std::vector<int64_t> reduced_shape(at::IntArrayRef sizes, const Axes& axes, bool keep) {
  std::vector<int64_t> shape = sizes.vec();
  for (const int64_t axis : std::views::reverse(axes)) {
    if (keep) {
      shape[static_cast<size_t>(axis)] = 1;
    } else {
      shape.erase(shape.begin() + axis);
    }
  }
  return shape;
}

KernelMaker reduce(Reduction reduction, int64_t axes_input_since = 18, bool ordered = false) {
  return [=](const OpInfo& info) -> Kernel {
    const bool keep = info.node().get_int("keepdims", 1) != 0;
    return [=, axes_of = ReducedAxes(info, axes_input_since)](Call& call) {
      const DType type = call.type(0);
      at::Tensor x = widen(call.in(0));
      if (type == DType::Bool) x = x.to(at::kByte);
      if (ordered) x = flip_order(x, type);
      Axes axes = axes_of(call);
      if (call.shapes_only()) return call.out_zeros(0, reduced_shape(x.sizes(), axes, keep), type);
      const bool nothing = axes.empty() && x.dim() > 0;
      if (nothing) {
        // ATen takes no axes for all axes: reduce over an added one of length 1.
        axes = {0};
        x = x.unsqueeze(0);
      }
      at::Tensor out = reduction(x, axes, keep && !nothing);
      call.out(0, ordered ? flip_order(out, type) : out, type);
    };
  };
}

KernelMaker arg_extreme(bool largest) {
  return [largest](const OpInfo& info) -> Kernel {
    const int64_t axis = info.node().get_int("axis", 0);
    const bool keep = info.node().get_int("keepdims", 1) != 0;
    const bool last = info.node().get_int("select_last_index", 0) != 0;
    return [=](Call& call) {
      at::Tensor x = flip_order(widen(call.in(0)), call.type(0));
      const int64_t dim = wrap_axis(axis, x.dim());
      if (last) x = x.flip(dim);
      const at::Tensor found = largest ? at::argmax(x, dim, keep) : at::argmin(x, dim, keep);
      call.out(0, last ? x.size(dim) - 1 - found : found);
    };
  };
}

KernelMaker cumulative(bool products) {
  return [products](const OpInfo& info) -> Kernel {
    const bool exclusive = info.node().get_int("exclusive", 0) != 0;
    const bool reverse = info.node().get_int("reverse", 0) != 0;
    return [=](Call& call) {
      at::Tensor x = widen(call.in(0));
      const int64_t axis = wrap_axis(call.in(1).item<int64_t>(), x.dim());
      if (reverse) x = x.flip(axis);
      if (exclusive && x.size(axis) > 0) {
        const at::Tensor first = at::full_like(x.narrow(axis, 0, 1), products ? 1 : 0);
        x = at::cat({first, x.narrow(axis, 0, x.size(axis) - 1)}, axis);
      }
      x = products ? at::cumprod(x, axis, x.scalar_type()) : at::cumsum(x, axis, x.scalar_type());
      call.out(0, reverse ? x.flip(axis) : x, call.type(0));
    };
  };
}

Kernel make_top_k(const OpInfo& info) {
  const int64_t axis = info.node().get_int("axis", -1);
  const bool largest = info.node().get_int("largest", 1) != 0;
  const bool attribute = info.opset() < 10;
  const int64_t given = info.node().get_int("k", 0);
  return [=](Call& call) {
    const DType type = call.type(0);
    const at::Tensor x = flip_order(widen(call.in(0)), type);
    const int64_t dim = wrap_axis(axis, x.dim());
    const int64_t k = attribute ? given : call.in(1).item<int64_t>();
    if (k < 0 || k > x.size(dim)) {
      fail(ErrorCode::InvalidInput, "k", "{} elements of {} are asked for", k, x.size(dim));
    }
    // A stable sort puts the lower index first among equals, which at::topk does not promise.
    const auto [values, indices] = at::sort(x, /*stable=*/true, dim, largest);
    call.out(0, flip_order(values.narrow(dim, 0, k), type), type);
    call.out(1, indices.narrow(dim, 0, k));
  };
}

OpFacts reducing(Homogeneous homogeneous) {
  return fixed_shape({1}).with(homogeneous).where([](const NodeView& view, OpFacts& facts) {
    const std::optional<std::vector<int64_t>> axes = view.axes("axes", 1);
    if (!axes || axes->empty()) return;
    const int64_t first = *std::ranges::min_element(*axes);
    if (first >= 1) facts.samples = Samples::First;
    if (first >= 2 && facts.homogeneous == Homogeneous::Tensor) facts.homogeneous = Homogeneous::Channels;
  });
}

}  // namespace

void register_reduce(OpRegistry& ops) {
  ops.add("ReduceSum", reduce(total, 13), reducing(Homogeneous::Tensor));
  ops.add("ReduceMean", reduce(mean), reducing(Homogeneous::Tensor));
  ops.add("ReduceMax", reduce(largest_of, 18, /*ordered=*/true), reducing(Homogeneous::Tensor));
  ops.add("ReduceMin", reduce(smallest_of, 18, /*ordered=*/true), reducing(Homogeneous::Tensor));
  ops.add("ReduceProd", reduce(product), reducing(Homogeneous::No));
  ops.add("ReduceL1", reduce(l1), reducing(Homogeneous::Tensor));
  ops.add("ReduceL2", reduce(l2), reducing(Homogeneous::Tensor));
  ops.add("ReduceLogSum", reduce(log_sum), reducing(Homogeneous::No));
  ops.add("ReduceLogSumExp", reduce(log_sum_exp), reducing(Homogeneous::No));
  ops.add("ReduceSumSquare", reduce(sum_square), reducing(Homogeneous::No));
  ops.add("ArgMax", arg_extreme(true), fixed_shape());
  ops.add("ArgMin", arg_extreme(false), fixed_shape());
  ops.add("CumSum", cumulative(false), fixed_shape());
  ops.add("CumProd", cumulative(true), fixed_shape());
  ops.add("TopK", make_top_k, fixed_shape({1}));
  ops.add_simple(
      "Det", [](Call& call) { call.out(0, at::linalg_det(widen(call.in(0))), call.type(0)); }, fixed_shape());
}

}  // namespace kaon
