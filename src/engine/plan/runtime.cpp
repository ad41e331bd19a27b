#include "engine/plan/runtime.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/error.h"

namespace kaon {

const dnnl::engine& dnnl_cpu() {
  static const dnnl::engine kEngine = [] {
    // Plans keep the primitives they run. Those that oneDNN keeps besides serve the next plans; a thousand of them, as
    // it would, grow for ever under new shapes.
    constexpr int kPrimitivesKept = 256;
    if (dnnl::get_primitive_cache_capacity() > kPrimitivesKept) dnnl::set_primitive_cache_capacity(kPrimitivesKept);
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return kEngine;
}

dnnl::primitive_attr plan_attr() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

bool is_fast(const dnnl::primitive_desc_base& description) {
  // A primitive made of others names them too: "jit:avx2+ref".
  return description.get(true) != nullptr &&
         std::string_view(description.impl_info_str()).find("ref") == std::string_view::npos;
}

bool same_bytes(const Value& a, const Value& b) {
  if (a.type != b.type || a.tensor.sizes() != b.tensor.sizes()) return false;
  return a.tensor.data_ptr() == b.tensor.data_ptr() ||
         std::memcmp(a.tensor.data_ptr(), b.tensor.data_ptr(), a.tensor.nbytes()) == 0;
}

at::Tensor current(const at::Tensor& tensor, const Exchanged& exchanged) {
  if (!tensor.defined()) return tensor;
  const auto found = exchanged.find(tensor.data_ptr());
  return found == exchanged.end() ? tensor : found->second;
}

void Runtime::set(int32_t slot, Value value) {
  void* pointer = value.tensor.data_ptr();
  for (const int32_t alias : aliases[static_cast<size_t>(slot)]) {
    pointers[static_cast<size_t>(alias)] = pointer;
    values[static_cast<size_t>(alias)] = {value.tensor.view(shapes[static_cast<size_t>(alias)]), value.type};
  }
  pointers[static_cast<size_t>(slot)] = pointer;
  values[static_cast<size_t>(slot)] = std::move(value);
}

Desc plain_desc(const Shape& shape) {
  if (std::ssize(shape) > DNNL_MAX_NDIMS) {
    fail(ErrorCode::Unsupported, "plan", "a value of rank {}; up to {} are planned", shape.size(), DNNL_MAX_NDIMS);
  }
  // What dnnl_memory_desc_init_by_strides would make of row-major strides, without its checks: they cost more than the
  // rest of lowering.
  Desc desc;
  dnnl_memory_desc_t& data = desc.data;
  data.ndims = std::max(static_cast<int>(shape.size()), 1);
  data.data_type = dnnl_f32;
  data.format_kind = dnnl_blocked;
  int64_t stride = 1;
  for (int i = data.ndims; i-- > 0;) {
    const int64_t extent = shape.empty() ? 1 : shape[static_cast<size_t>(i)];
    data.dims[i] = data.padded_dims[i] = extent;
    data.format_desc.blocking.strides[i] = stride;
    stride *= std::max<int64_t>(extent, 1);
  }
  return desc;
}

bool is_plain(const Desc& desc, const Shape& shape) {
  const dnnl_memory_desc_t& data = desc.data;
  const dnnl_blocking_desc_t& blocking = data.format_desc.blocking;
  if (data.ndims != std::max<int64_t>(std::ssize(shape), 1) || data.data_type != dnnl_f32 || data.offset0 != 0 ||
      data.format_kind != dnnl_blocked || blocking.inner_nblks != 0 || data.extra.flags != 0) {
    return false;
  }
  int64_t stride = 1;
  for (int i = data.ndims; i-- > 0;) {
    const int64_t extent = shape.empty() ? 1 : shape[static_cast<size_t>(i)];
    if (data.dims[i] != extent || data.padded_dims[i] != extent || data.padded_offsets[i] != 0 ||
        blocking.strides[i] != stride) {
      return false;
    }
    stride *= std::max<int64_t>(extent, 1);
  }
  return true;
}

Desc any_layout(const Shape& shape) { return {shape, dnnl::memory::data_type::f32, dnnl::memory::format_tag::any}; }

int64_t element_capacity(const Desc& desc) { return static_cast<int64_t>(desc.get_size() / sizeof(float)); }

Offsets::Offsets(const Desc& desc) {
  const dnnl_memory_desc_t& d = desc.data;
  dims_.assign(d.dims, d.dims + d.ndims);
  strides_.assign(d.format_desc.blocking.strides, d.format_desc.blocking.strides + d.ndims);
  for (int i = 0; i < d.format_desc.blocking.inner_nblks; ++i) {
    inner_.emplace_back(d.format_desc.blocking.inner_idxs[i], d.format_desc.blocking.inner_blks[i]);
  }
}

int64_t Offsets::of(int64_t index) const {
  int64_t position[DNNL_MAX_NDIMS];
  for (size_t i = dims_.size(); i-- > 0;) {
    position[i] = index % dims_[i];
    index /= dims_[i];
  }
  int64_t offset = 0;
  int64_t inner_stride = 1;
  for (size_t i = inner_.size(); i-- > 0;) {
    const auto [axis, block] = inner_[i];
    offset += position[axis] % block * inner_stride;
    position[axis] /= block;
    inner_stride *= block;
  }
  for (size_t i = 0; i < dims_.size(); ++i) offset += position[i] * strides_[i];
  return offset;
}

}  // namespace kaon
