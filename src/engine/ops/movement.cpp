#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "engine/arith.h"
#include "engine/memory_guard.h"

namespace kaon {

namespace {

/// Hands on the first input's type: moving elements never changes it.
void moved(Call& call, at::Tensor tensor, size_t output = 0) {
  call.out(output, Value{std::move(tensor), call.type(0)});
}

int64_t product(at::IntArrayRef sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

int64_t one_int(const Call& call, size_t input) {
  const std::vector<int64_t> values = call.ints(input);
  if (values.size() != 1) fail(ErrorCode::InvalidInput, fmt::format("input {}", input), "must hold one number");
  return values[0];
}

/// Integers that were an attribute in old opsets and are an input since; nothing where the node has neither.
class IntsFrom {
 public:
  IntsFrom(const OpInfo& info, const char* attribute, int64_t input_since, size_t input) : input_(input) {
    if (info.opset() < input_since && info.node().find(attribute) != nullptr) {
      fixed_ = info.node().get_ints(attribute);
    }
  }

  std::optional<std::vector<int64_t>> operator()(const Call& call) const {
    if (fixed_) return fixed_;
    if (call.has(input_)) return call.ints(input_);
    return std::nullopt;
  }

 private:
  size_t input_;
  std::optional<std::vector<int64_t>> fixed_;
};

std::vector<int64_t> resolve_shape(std::vector<int64_t> shape, const at::Tensor& x, bool zero_is_zero) {
  std::optional<size_t> open;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0 && !zero_is_zero) {
      if (static_cast<int64_t>(i) >= x.dim()) {
        fail(ErrorCode::InvalidInput, "shape", "dimension {} is to be copied from an input of rank {}", i, x.dim());
      }
      shape[i] = x.size(static_cast<int64_t>(i));
    } else if (shape[i] == -1 && !open) {
      open = i;
    } else if (shape[i] < 0) {
      fail(ErrorCode::InvalidInput, "shape", "{} has more than one open or a negative dimension", to_string(shape));
    }
  }
  if (open) {
    shape[*open] = 1;
    const int64_t known = element_count(shape);
    shape[*open] = known == 0 ? 0 : x.numel() / known;
  }
  if (element_count(shape) != x.numel()) {
    fail(ErrorCode::InvalidInput, "shape", "{} does not hold the {} elements of the input {}", to_string(shape),
         x.numel(), to_string(x.sizes()));
  }
  return shape;
}

Kernel make_reshape(const OpInfo& info) {
  const bool allow_zero = info.node().get_int("allowzero", 0) != 0;
  return [shape = IntsFrom(info, "shape", 5, 1), allow_zero](Call& call) {
    const std::optional<std::vector<int64_t>> wanted = shape(call);
    if (!wanted) fail(ErrorCode::InvalidInput, "shape", "Reshape needs the new shape");
    moved(call, call.in(0).reshape(resolve_shape(*wanted, call.in(0), allow_zero)));
  };
}

Kernel make_flatten(const OpInfo& info) {
  const int64_t axis = info.node().get_int("axis", 1);
  return [axis](Call& call) {
    const at::Tensor& x = call.in(0);
    const int64_t rank = x.dim();
    if (axis < -rank || axis > rank) {
      fail(ErrorCode::InvalidInput, "axis", "{} is outside [-{}, {}]", axis, rank, rank);
    }
    const auto split = static_cast<size_t>(axis < 0 ? axis + rank : axis);
    moved(call, x.reshape({product(x.sizes().slice(0, split)), product(x.sizes().slice(split))}));
  };
}

Kernel make_squeeze(const OpInfo& info) {
  return [axes = IntsFrom(info, "axes", 13, 1)](Call& call) {
    const at::Tensor& x = call.in(0);
    const std::optional<std::vector<int64_t>> wanted = axes(call);
    std::vector<bool> drop(static_cast<size_t>(x.dim()));
    if (wanted) {
      for (const int64_t axis : *wanted) {
        const int64_t i = wrap_axis(axis, x.dim());
        if (x.size(i) != 1) fail(ErrorCode::InvalidInput, "axes", "dimension {} is {}, not 1", i, x.size(i));
        drop[static_cast<size_t>(i)] = true;
      }
    } else {
      for (size_t i = 0; i < drop.size(); ++i) drop[i] = x.size(static_cast<int64_t>(i)) == 1;
    }
    std::vector<int64_t> shape;
    for (size_t i = 0; i < drop.size(); ++i) {
      if (!drop[i]) shape.push_back(x.size(static_cast<int64_t>(i)));
    }
    moved(call, x.reshape(shape));
  };
}

Kernel make_unsqueeze(const OpInfo& info) {
  return [axes = IntsFrom(info, "axes", 13, 1)](Call& call) {
    const at::Tensor& x = call.in(0);
    std::optional<std::vector<int64_t>> wanted = axes(call);
    if (!wanted) fail(ErrorCode::InvalidInput, "axes", "Unsqueeze needs them");
    const int64_t rank = x.dim() + std::ssize(*wanted);
    for (int64_t& axis : *wanted) axis = wrap_axis(axis, rank);
    std::sort(wanted->begin(), wanted->end());
    if (std::adjacent_find(wanted->begin(), wanted->end()) != wanted->end()) {
      fail(ErrorCode::InvalidInput, "axes", "{} names an axis twice", to_string(*wanted));
    }
    std::vector<int64_t> shape = x.sizes().vec();
    for (const int64_t axis : *wanted) shape.insert(shape.begin() + axis, 1);
    moved(call, x.reshape(shape));
  };
}

Kernel make_transpose(const OpInfo& info) {
  return [perm = info.node().get_ints("perm")](Call& call) {
    const at::Tensor& x = call.in(0);
    std::vector<int64_t> order = perm;
    if (order.empty()) {
      order.resize(static_cast<size_t>(x.dim()));
      std::iota(order.rbegin(), order.rend(), 0);
    }
    moved(call, x.permute(order));
  };
}

/// Whether two tensors have the same shape but along one axis.
bool fits(const at::Tensor& a, const at::Tensor& b, int64_t axis) {
  if (a.dim() != b.dim()) return false;
  for (int64_t i = 0; i < a.dim(); ++i) {
    if (i != axis && a.size(i) != b.size(i)) return false;
  }
  return true;
}

Kernel make_concat(const OpInfo& info) {
  if (info.opset() >= 4 && info.node().find("axis") == nullptr) {
    fail(ErrorCode::InvalidInput, info.node().label(), "the attribute 'axis' is missing");
  }
  const int64_t axis = info.node().get_int("axis", 1);
  return [axis](Call& call) {
    std::vector<at::Tensor> parts;
    parts.reserve(call.input_count());
    for (size_t i = 0; i < call.input_count(); ++i) {
      if (call.type(i) != call.type(0)) {
        fail(ErrorCode::InvalidInput, fmt::format("input {}", i), "is {} and input 0 is {}; Concat needs one type",
             name_of(call.type(i)), name_of(call.type(0)));
      }
      parts.push_back(call.in(i));
    }
    const int64_t along = wrap_axis(axis, call.in(0).dim());
    if (call.shapes_only() &&
        std::ranges::all_of(parts, [&](const at::Tensor& part) { return fits(part, parts[0], along); })) {
      std::vector<int64_t> shape = parts[0].sizes().vec();
      for (size_t i = 1; i < parts.size(); ++i) shape[static_cast<size_t>(along)] += parts[i].size(along);
      return call.out_zeros(0, shape, call.type(0));
    }
    moved(call, at::cat(parts, along));
  };
}

Kernel make_split(const OpInfo& info) {
  const int64_t axis = info.node().get_int("axis", 0);
  const auto count = static_cast<int64_t>(info.output_count());
  return [axis, count, split = IntsFrom(info, "split", 13, 1)](Call& call) {
    const at::Tensor& x = call.in(0);
    const int64_t dim = wrap_axis(axis, x.dim());
    std::optional<std::vector<int64_t>> sizes = split(call);
    if (!sizes) {
      const int64_t chunk = (x.size(dim) + count - 1) / count;
      sizes.emplace();
      for (int64_t i = 0; i < count; ++i) {
        sizes->push_back(std::clamp<int64_t>(x.size(dim) - i * chunk, 0, chunk));
      }
    }
    // Parts that fit one by one have a sum that does not overflow.
    const bool each_fits = std::ranges::all_of(*sizes, [&](int64_t part) { return part >= 0 && part <= x.size(dim); });
    if (std::ssize(*sizes) != count || !each_fits ||
        std::accumulate(sizes->begin(), sizes->end(), int64_t{0}) != x.size(dim)) {
      fail(ErrorCode::InvalidInput, "split", "{} does not cut a dimension of {} into {} parts", to_string(*sizes),
           x.size(dim), count);
    }
    int64_t start = 0;
    for (size_t i = 0; i < sizes->size(); ++i) {
      moved(call, x.narrow(dim, start, (*sizes)[i]), i);
      start += (*sizes)[i];
    }
  };
}

at::Tensor slice_axis(const at::Tensor& x, int64_t axis, int64_t start, int64_t end, int64_t step) {
  const int64_t size = x.size(axis);
  if (step == 0) fail(ErrorCode::InvalidInput, "steps", "a step is 0");
  step = std::max(step, -std::numeric_limits<int64_t>::max());
  if (start < 0) start += size;
  if (end < 0) end += size;
  if (step > 0) {
    start = std::clamp<int64_t>(start, 0, size);
    return x.slice(axis, start, std::clamp<int64_t>(end, start, size), step);
  }
  start = std::clamp<int64_t>(start, -1, size - 1);
  end = std::clamp<int64_t>(end, -1, start);
  if (start == end) return x.narrow(axis, 0, 0);
  const int64_t steps = (start - end - 1) / -step;
  return x.slice(axis, start + steps * step, start + 1, -step).flip(axis);
}

Kernel make_slice(const OpInfo& info) {
  return [starts = IntsFrom(info, "starts", 10, 1), ends = IntsFrom(info, "ends", 10, 2),
          axes = IntsFrom(info, "axes", 10, 3)](Call& call) {
    const std::optional<std::vector<int64_t>> from = starts(call);
    const std::optional<std::vector<int64_t>> to = ends(call);
    std::optional<std::vector<int64_t>> on = axes(call);
    const std::vector<int64_t> steps = call.has(4) ? call.ints(4) : std::vector<int64_t>(from ? from->size() : 0, 1);
    if (!on) {
      on.emplace(from ? from->size() : 0);
      std::iota(on->begin(), on->end(), 0);
    }
    if (!from || !to || to->size() != from->size() || on->size() != from->size() || steps.size() != from->size()) {
      fail(ErrorCode::InvalidInput, "starts", "starts, ends, axes and steps must be given and be of one length");
    }
    at::Tensor x = call.in(0);
    for (size_t i = 0; i < on->size(); ++i) {
      x = slice_axis(x, wrap_axis((*on)[i], x.dim()), (*from)[i], (*to)[i], steps[i]);
    }
    moved(call, x);
  };
}

void expand(Call& call) {
  const std::vector<int64_t> shape = at::infer_size(call.in(0).sizes(), call.sizes(1));
  require_room(shape, static_cast<int64_t>(call.in(0).element_size()));
  moved(call, call.in(0).expand(shape));
}

Kernel make_tile(const OpInfo& info) {
  const bool single_axis = info.opset() < 6;
  return [single_axis](Call& call) {
    const at::Tensor& x = call.in(0);
    std::vector<int64_t> repeats = call.sizes(1);
    if (single_axis) {
      const int64_t tiles = one_int(call, 1);
      repeats.assign(static_cast<size_t>(x.dim()), 1);
      repeats[static_cast<size_t>(wrap_axis(one_int(call, 2), x.dim()))] = tiles;
    }
    if (std::ssize(repeats) != x.dim()) {
      fail(ErrorCode::InvalidInput, "repeats", "{} does not fit an input of rank {}", to_string(repeats), x.dim());
    }
    std::vector<int64_t> shape = x.sizes().vec();
    for (size_t i = 0; i < shape.size(); ++i) shape[i] *= repeats[i];
    require_room(shape, static_cast<int64_t>(x.element_size()));
    moved(call, x.repeat(repeats));
  };
}

int64_t require_block(const OpInfo& info) {
  const int64_t block = info.node().get_int("blocksize", 0);
  if (block < 1) fail(ErrorCode::InvalidInput, info.node().label(), "'blocksize' must be at least 1, not {}", block);
  return block;
}

void require_divisible(const at::Tensor& x, int64_t axis, int64_t by) {
  if (x.dim() != 4 || x.size(axis) % by != 0) {
    fail(ErrorCode::InvalidInput, "input 0", "{} must be of rank 4, with dimension {} a multiple of {}",
         to_string(x.sizes()), axis, by);
  }
}

Kernel make_depth_to_space(const OpInfo& info) {
  const int64_t block = require_block(info);
  const std::string mode = info.node().get_string("mode", "DCR");
  if (mode != "DCR" && mode != "CRD") info.unsupported("mode '" + mode + "'; DCR and CRD are known");
  return [block, depth_first = mode == "DCR"](Call& call) {
    const at::Tensor& x = call.in(0);
    require_divisible(x, 1, block * block);
    const int64_t n = x.size(0), c = x.size(1) / (block * block), h = x.size(2), w = x.size(3);
    const at::Tensor apart = depth_first ? x.reshape({n, block, block, c, h, w}).permute({0, 3, 4, 1, 5, 2})
                                         : x.reshape({n, c, block, block, h, w}).permute({0, 1, 4, 2, 5, 3});
    moved(call, apart.reshape({n, c, h * block, w * block}));
  };
}

Kernel make_space_to_depth(const OpInfo& info) {
  const int64_t block = require_block(info);
  return [block](Call& call) {
    const at::Tensor& x = call.in(0);
    require_divisible(x, 2, block);
    require_divisible(x, 3, block);
    const int64_t n = x.size(0), c = x.size(1), h = x.size(2) / block, w = x.size(3) / block;
    moved(call,
          x.reshape({n, c, h, block, w, block}).permute({0, 3, 5, 1, 2, 4}).reshape({n, c * block * block, h, w}));
  };
}

Kernel make_compress(const OpInfo& info) {
  const bool flat = info.node().find("axis") == nullptr;
  const int64_t axis = info.node().get_int("axis", 0);
  return [flat, axis](Call& call) {
    const at::Tensor x = flat ? call.in(0).reshape({-1}) : call.in(0);
    moved(call, x.index_select(wrap_axis(axis, x.dim()), call.in(1).reshape({-1}).nonzero().reshape({-1})));
  };
}

Kernel make_trilu(const OpInfo& info) {
  const bool upper = info.node().get_int("upper", 1) != 0;
  return [upper](Call& call) {
    const at::Tensor& x = call.in(0);
    if (x.dim() < 2) fail(ErrorCode::InvalidInput, "input 0", "its rank is {}, at least 2 is needed", x.dim());
    const int64_t k = call.has(1) ? std::clamp(one_int(call, 1), -x.size(-2) - 1, x.size(-1) + 1) : 0;
    moved(call, upper ? at::triu(x, k) : at::tril(x, k));
  };
}

/// The first lengths[b] steps of each batch entry in reverse, the rest as it was.
Kernel make_reverse_sequence(const OpInfo& info) {
  const int64_t batch = info.node().get_int("batch_axis", 1);
  const int64_t time = info.node().get_int("time_axis", 0);
  return [batch, time](Call& call) {
    const at::Tensor x = call.in(0).transpose(0, wrap_axis(batch, call.in(0).dim()));
    // With the batch in front, the time axis may have changed places with it.
    const int64_t axis = wrap_axis(time, x.dim()) == 0 ? wrap_axis(batch, x.dim()) : wrap_axis(time, x.dim());
    const at::Tensor steps = at::arange(x.size(axis), x.options().dtype(at::kLong)).unsqueeze(0);
    const at::Tensor lengths = call.in(1).to(at::kLong).reshape({-1, 1});
    std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
    shape[0] = x.size(0);
    shape[static_cast<size_t>(axis)] = x.size(axis);
    const at::Tensor source = at::where(steps < lengths, lengths - 1 - steps, steps).reshape(shape);
    moved(call, x.gather(axis, source.expand(x.sizes())).transpose(0, wrap_axis(batch, x.dim())));
  };
}

void decide_flatten(const NodeView& view, OpFacts& facts) {
  const std::optional<Shape> shape = view.shape(0);
  const int64_t axis = view.node.get_int("axis", 1);
  if (shape && axis != 0 && axis != -std::ssize(*shape)) facts.samples = Samples::First;
}

void decide_transpose(const NodeView& view, OpFacts& facts) {
  const std::vector<int64_t> order = view.node.get_ints("perm");
  if (order.empty() || order[0] != 0) return;
  facts.samples = Samples::First;
  if (order.size() > 1 && order[1] == 1) facts.homogeneous = Homogeneous::Channels;
}

void decide_concat(const NodeView& view, OpFacts& facts) {
  const std::optional<int64_t> axis = view.axis(view.node.get_int("axis", 1));
  if (axis && *axis >= 1) facts.samples = Samples::Every;
}

void decide_slice(const NodeView& view, OpFacts& facts) {
  const std::optional<std::vector<int64_t>> axes = view.axes("axes", 3);
  if (!axes || axes->empty()) return;
  if (std::ranges::none_of(*axes, [](int64_t axis) { return axis == 0; })) facts.samples = Samples::First;
  if (std::ranges::none_of(*axes, [](int64_t axis) { return axis == 1; })) facts.homogeneous = Homogeneous::Channels;
}

}  // namespace

void register_movement(OpRegistry& ops) {
  ops.add("Reshape", make_reshape, moving({1}));
  ops.add("Flatten", make_flatten, moving().where(decide_flatten));
  ops.add("Squeeze", make_squeeze, moving({1}));
  ops.add("Unsqueeze", make_unsqueeze, moving({1}));
  ops.add("Transpose", make_transpose, moving().where(decide_transpose));
  ops.add("Concat", make_concat,
          fixed_shape().with(Homogeneous::Tensor).with(FlowKind::Computes).with_all_data().where(decide_concat));
  ops.add("Split", make_split, moving({1}));
  ops.add("Slice", make_slice, moving({1, 2, 3, 4}).with_any_ints().where(decide_slice));
  ops.add_simple("Expand", expand, moving({1}));
  ops.add("Tile", make_tile, moving({1, 2}));
  ops.add("DepthToSpace", make_depth_to_space, moving().with(Samples::First));
  ops.add("SpaceToDepth", make_space_to_depth, moving().with(Samples::First));
  ops.add("Compress", make_compress, data_shape());
  ops.add("Trilu", make_trilu, fixed_shape());
  ops.add("ReverseSequence", make_reverse_sequence, fixed_shape());
}

}  // namespace kaon
