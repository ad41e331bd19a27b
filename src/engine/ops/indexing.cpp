#include <numeric>
#include <span>

#include "engine/arith.h"

namespace kaon {

namespace {

enum class Reduction { None, Add, Mul, Min, Max };

Reduction reduction(const OpInfo& info) {
  const std::string name = info.node().get_string("reduction", "none");
  if (name == "none") return Reduction::None;
  if (name == "add") return Reduction::Add;
  if (name == "mul") return Reduction::Mul;
  if (name == "min") return Reduction::Min;
  if (name == "max") return Reduction::Max;
  info.unsupported("reduction '" + name + "'; none, add, mul, min and max are known");
}

int64_t product(at::IntArrayRef sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

/// Indices into an axis of `size`, negative ones counted from its end.
at::Tensor from_front(const at::Tensor& indices, int64_t size) {
  at::Tensor out = indices.to(at::kLong, /*non_blocking=*/false, /*copy=*/true, at::MemoryFormat::Contiguous);
  for (int64_t& index : std::span(out.data_ptr<int64_t>(), static_cast<size_t>(out.numel()))) {
    if (index < 0) index += size;
  }
  return out;
}

/// Tuples in the last axis of `indices`, each turned into one offset into axes of the given sizes.
at::Tensor linear_index(const at::Tensor& indices, at::IntArrayRef sizes) {
  const at::Tensor limit = at::tensor(sizes, at::kLong).to(indices.device());
  at::Tensor wide = indices.to(at::kLong);
  wide = at::where(wide.lt(0), wide + limit, wide);
  if (at::logical_or(wide.lt(0), wide.ge(limit)).any().item<bool>()) {
    fail(ErrorCode::InvalidInput, "indices", "one lies outside the dimensions {}", to_string(sizes));
  }
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
  return (wide * at::tensor(strides, at::kLong).to(indices.device())).sum(-1);
}

Kernel make_gather(const OpInfo& info) {
  const int64_t axis = info.node().get_int("axis", 0);
  return [axis](Call& call) {
    const at::Tensor& data = call.in(0);
    const at::Tensor& indices = call.in(1);
    const int64_t dim = wrap_axis(axis, data.dim());
    std::vector<int64_t> shape = data.sizes().vec();
    shape.erase(shape.begin() + dim);
    shape.insert(shape.begin() + dim, indices.sizes().begin(), indices.sizes().end());
    if (call.shapes_only()) return call.out_zeros(0, shape, call.type(0));
    const at::Tensor flat = from_front(indices.reshape({-1}), data.size(dim));
    call.out(0, Value{data.index_select(dim, flat).reshape(shape), call.type(0)});
  };
}

Kernel make_gather_elements(const OpInfo& info) {
  const int64_t axis = info.node().get_int("axis", 0);
  return [axis](Call& call) {
    const at::Tensor& data = call.in(0);
    const int64_t dim = wrap_axis(axis, data.dim());
    call.out(0, Value{data.gather(dim, from_front(call.in(1), data.size(dim))), call.type(0)});
  };
}

Kernel make_gather_nd(const OpInfo& info) {
  const int64_t batch_dims = info.node().get_int("batch_dims", 0);
  return [batch_dims](Call& call) {
    const at::Tensor& data = call.in(0);
    const at::Tensor& indices = call.in(1);
    const int64_t depth = indices.dim() == 0 ? 0 : indices.size(-1);
    if (batch_dims < 0 || batch_dims >= indices.dim() || depth < 1 || batch_dims + depth > data.dim()) {
      fail(ErrorCode::InvalidInput, "indices", "their shape {} does not fit data of shape {} and {} batch dimensions",
           to_string(indices.sizes()), to_string(data.sizes()), batch_dims);
    }
    const auto b = static_cast<size_t>(batch_dims);
    const auto k = static_cast<size_t>(depth);
    const at::IntArrayRef inner = data.sizes().slice(b, k);
    const at::IntArrayRef rest = data.sizes().slice(b + k);
    const int64_t batches = product(data.sizes().slice(0, b));
    const at::IntArrayRef places = indices.sizes().slice(b, indices.sizes().size() - b - 1);
    at::Tensor flat = linear_index(indices, inner).reshape({batches, product(places)});
    flat = flat + at::arange(batches, flat.options()).unsqueeze(1) * product(inner);
    std::vector<int64_t> shape(data.sizes().begin(), data.sizes().begin() + batch_dims);
    shape.insert(shape.end(), places.begin(), places.end());
    shape.insert(shape.end(), rest.begin(), rest.end());
    const at::Tensor rows = data.reshape({batches * product(inner), product(rest)});
    call.out(0, Value{rows.index_select(0, flat.reshape({-1})).reshape(shape), call.type(0)});
  };
}

at::Tensor scatter(const at::Tensor& data, int64_t axis, const at::Tensor& index, const at::Tensor& updates,
                   Reduction how, DType type) {
  if (how == Reduction::None) return at::scatter(data, axis, index, updates);
  if (how == Reduction::Add) return at::scatter_add(widen(data), axis, index, widen(updates));
  if (how == Reduction::Mul) {
    return at::scatter_reduce(widen(data), axis, index, widen(updates), "prod");
  }
  const at::Tensor from = flip_order(widen(updates), type);
  const at::Tensor into = flip_order(widen(data), type);
  return flip_order(at::scatter_reduce(into, axis, index, from, how == Reduction::Min ? "amin" : "amax"), type);
}

Kernel make_scatter_elements(const OpInfo& info) {
  const int64_t axis = info.node().get_int("axis", 0);
  return [axis, how = reduction(info)](Call& call) {
    const at::Tensor& data = call.in(0);
    const int64_t dim = wrap_axis(axis, data.dim());
    const at::Tensor index = from_front(call.in(1), data.size(dim));
    call.out(0, scatter(data, dim, index, call.in(2), how, call.type(0)), call.type(0));
  };
}

Kernel make_scatter_nd(const OpInfo& info) {
  return [how = reduction(info)](Call& call) {
    const at::Tensor& data = call.in(0);
    const at::Tensor& indices = call.in(1);
    const int64_t depth = indices.dim() == 0 ? 0 : indices.size(-1);
    if (depth < 1 || depth > data.dim()) {
      fail(ErrorCode::InvalidInput, "indices", "their shape {} does not fit data of shape {}",
           to_string(indices.sizes()), to_string(data.sizes()));
    }
    const at::IntArrayRef outer = data.sizes().slice(0, static_cast<size_t>(depth));
    const int64_t rest = product(data.sizes().slice(static_cast<size_t>(depth)));
    const at::Tensor flat = linear_index(indices, outer).reshape({-1});
    const at::Tensor rows = data.reshape({product(outer), rest});
    const at::Tensor updates = call.in(2).reshape({flat.size(0), rest});
    at::Tensor result;
    if (how == Reduction::None) {
      result = at::index_put(rows, {flat}, updates);
    } else {
      result = scatter(rows, 0, flat.unsqueeze(1).expand({flat.size(0), rest}), updates, how, call.type(0));
    }
    call.out(0, result.reshape(data.sizes()), call.type(0));
  };
}

Kernel make_one_hot(const OpInfo& info) {
  const int64_t axis = info.node().get_int("axis", -1);
  return [axis](Call& call) {
    const int64_t depth = call.in(1).reshape({-1})[0].item().toLong();
    if (depth < 0) fail(ErrorCode::InvalidInput, "depth", "{} is negative", depth);
    const at::Tensor indices = from_front(call.in(0), depth);
    const int64_t dim = wrap_axis(axis, indices.dim() + 1);
    std::vector<int64_t> shape(static_cast<size_t>(indices.dim() + 1), 1);
    shape[static_cast<size_t>(dim)] = depth;
    const at::Tensor hot = indices.unsqueeze(dim).eq(at::arange(depth, indices.options()).reshape(shape));
    const at::Tensor& values = call.in(2);
    call.out(0, Value{at::where(hot, values.select(0, 1), values.select(0, 0)), call.type(2)});
  };
}

/// Writes `update` into a cache along the sequence axis, each batch entry from its own position on.
Kernel make_tensor_scatter(const OpInfo& info) {
  const int64_t axis = info.node().get_int("axis", -2);
  const std::string mode = info.node().get_string("mode", "linear");
  if (mode != "linear" && mode != "circular") info.unsupported("mode '" + mode + "'; linear and circular are known");
  return [axis, circular = mode == "circular"](Call& call) {
    const at::Tensor& cache = call.in(0);
    const at::Tensor& update = call.in(1);
    const int64_t dim = wrap_axis(axis, cache.dim());
    at::Tensor place = at::arange(update.size(dim), cache.options().dtype(at::kLong)).unsqueeze(0);
    place = call.has(2) ? place + call.in(2).to(at::kLong).reshape({-1, 1}) : place.expand({cache.size(0), -1});
    if (circular) place = place.remainder(cache.size(dim));
    std::vector<int64_t> shape(static_cast<size_t>(cache.dim()), 1);
    shape[0] = place.size(0);
    shape[static_cast<size_t>(dim)] = place.size(1);
    call.out(0, Value{at::scatter(cache, dim, place.reshape(shape).expand_as(update), update), call.type(0)});
  };
}

}  // namespace

void register_indexing(OpRegistry& ops) {
  ops.add("Gather", make_gather, moving());
  ops.add("GatherElements", make_gather_elements, fixed_shape());
  ops.add("GatherND", make_gather_nd, fixed_shape());
  ops.add("Scatter", make_scatter_elements, fixed_shape());
  ops.add("ScatterElements", make_scatter_elements, fixed_shape());
  ops.add("ScatterND", make_scatter_nd, fixed_shape());
  ops.add("OneHot", make_one_hot, fixed_shape({1}));
  ops.add("TensorScatter", make_tensor_scatter, fixed_shape());
}

}  // namespace kaon
