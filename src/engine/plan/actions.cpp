#include "engine/plan/actions.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/parallel.h"
#include "engine/plan/simd.h"

namespace kaon {

namespace {

constexpr int64_t kGrain = 32 * 1024;  // elements worth waking a second thread for

KAON_SIMD void gather(const float* in, float* out, const int32_t* map, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const int32_t from = map[i];
    out[i] = from < 0 ? 0.0F : in[from];
  }
}

KAON_SIMD void add(const float* a, const float* b, float* out, int64_t n, int64_t sa, int64_t sb) {
  if (sa != 0 && sb != 0)
    for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
  else if (sa != 0)
    for (int64_t i = 0; i < n; ++i) out[i] = a[i] + *b;
  else
    for (int64_t i = 0; i < n; ++i) out[i] = *a + b[i * sb];
}
KAON_SIMD void sub(const float* a, const float* b, float* out, int64_t n, int64_t sa, int64_t sb) {
  if (sa != 0 && sb != 0)
    for (int64_t i = 0; i < n; ++i) out[i] = a[i] - b[i];
  else if (sa != 0)
    for (int64_t i = 0; i < n; ++i) out[i] = a[i] - *b;
  else
    for (int64_t i = 0; i < n; ++i) out[i] = *a - b[i * sb];
}
KAON_SIMD void mul(const float* a, const float* b, float* out, int64_t n, int64_t sa, int64_t sb) {
  if (sa != 0 && sb != 0)
    for (int64_t i = 0; i < n; ++i) out[i] = a[i] * b[i];
  else if (sa != 0)
    for (int64_t i = 0; i < n; ++i) out[i] = a[i] * *b;
  else
    for (int64_t i = 0; i < n; ++i) out[i] = *a * b[i * sb];
}
KAON_SIMD void div(const float* a, const float* b, float* out, int64_t n, int64_t sa, int64_t sb) {
  if (sa != 0 && sb != 0)
    for (int64_t i = 0; i < n; ++i) out[i] = a[i] / b[i];
  else if (sa != 0)
    for (int64_t i = 0; i < n; ++i) out[i] = a[i] / *b;
  else
    for (int64_t i = 0; i < n; ++i) out[i] = *a / b[i * sb];
}

float min_of(float a, float b) { return std::isnan(a) || a < b ? a : b; }
float max_of(float a, float b) { return std::isnan(a) || a > b ? a : b; }
void min(const float* a, const float* b, float* out, int64_t n, int64_t sa, int64_t sb) {
  for (int64_t i = 0; i < n; ++i) out[i] = min_of(a[i * sa], b[i * sb]);
}
void max(const float* a, const float* b, float* out, int64_t n, int64_t sa, int64_t sb) {
  for (int64_t i = 0; i < n; ++i) out[i] = max_of(a[i * sa], b[i * sb]);
}

using BinaryRow = void (*)(const float*, const float*, float*, int64_t, int64_t, int64_t);
BinaryRow row_of(BinaryKind kind) {
  switch (kind) {
    case BinaryKind::Add: return add;
    case BinaryKind::Sub: return sub;
    case BinaryKind::Mul: return mul;
    case BinaryKind::Div: return div;
    case BinaryKind::Min: return min;
    case BinaryKind::Max: break;
  }
  return max;
}

KAON_SIMD void unary(UnaryKind kind, const float* in, float* out, int64_t n) {
  switch (kind) {
    case UnaryKind::Neg:
      for (int64_t i = 0; i < n; ++i) out[i] = -in[i];
      break;
    case UnaryKind::Sqrt:
      for (int64_t i = 0; i < n; ++i) out[i] = std::sqrt(in[i]);
      break;
    case UnaryKind::Reciprocal:
      for (int64_t i = 0; i < n; ++i) out[i] = 1.0F / in[i];
      break;
    case UnaryKind::Square:
      for (int64_t i = 0; i < n; ++i) out[i] = in[i] * in[i];
      break;
    case UnaryKind::Abs:
      for (int64_t i = 0; i < n; ++i) out[i] = std::fabs(in[i]);
      break;
    case UnaryKind::Floor:
      for (int64_t i = 0; i < n; ++i) out[i] = std::floor(in[i]);
      break;
    case UnaryKind::Ceil:
      for (int64_t i = 0; i < n; ++i) out[i] = std::ceil(in[i]);
      break;
  }
}

/// Sixteen partial results, so that the loop vectorizes without reordering a serial sum.
KAON_SIMD float row_sum(const float* in, int64_t n) {
  float parts[16] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int64_t k = 0; k < 16; ++k) parts[k] += in[i + k];
  }
  float total = 0;
  for (const float part : parts) total += part;
  for (; i < n; ++i) total += in[i];
  return total;
}

float row_max(const float* in, int64_t n) {
  float most = in[0];
  for (int64_t i = 1; i < n; ++i) most = max_of(in[i], most);
  return most;
}

}  // namespace

DnnlAction::DnnlAction(dnnl::primitive primitive) : primitive_(std::move(primitive)), threads_(ThreadScope::current()) {
  constexpr size_t kUsualSlots = 3;
  slots_.reserve(kUsualSlots);
  const_dnnl_primitive_desc_t description = nullptr;
  dnnl::error::wrap_c_api(dnnl_primitive_get_primitive_desc(primitive_.get(), &description),
                          "could not ask a primitive for what it is");
  scratch_ = Desc(*dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0));
}

void DnnlAction::bind(Runtime& runtime) {
  for (Argument& argument : slots_) {
    argument.handle = runtime.pointers[static_cast<size_t>(argument.slot)];
    argument.memory =
        dnnl::memory(argument.desc, dnnl_cpu(), argument.handle == nullptr ? DNNL_MEMORY_NONE : argument.handle);
    arguments_.push_back({argument.argument, argument.memory.get()});
  }
}

void DnnlAction::run(Runtime& runtime) {
  for (Argument& argument : slots_) {
    void* handle = runtime.pointers[static_cast<size_t>(argument.slot)];
    if (handle == argument.handle) continue;
    argument.memory.set_data_handle(handle);
    argument.handle = handle;
  }
  const ThreadScope scope(threads_);
  dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive_.get(), runtime.stream->get(),
                                                 static_cast<int>(arguments_.size()), arguments_.data()),
                          "could not execute a primitive");
}

ShuffleAction::ShuffleAction(int32_t in, int32_t out, std::vector<int32_t> map)
    : in_(in), out_(out), map_(std::move(map)) {
  const auto count = static_cast<int32_t>(map_.size());
  for (int32_t i = 0; i < count;) {
    int32_t end = i + 1;
    if (map_[static_cast<size_t>(i)] < 0) {
      while (end < count && map_[static_cast<size_t>(end)] < 0) ++end;
    } else {
      while (end < count && map_[static_cast<size_t>(end)] == map_[static_cast<size_t>(end - 1)] + 1) ++end;
    }
    runs_.push_back({i, map_[static_cast<size_t>(i)], end - i});
    i = end;
  }
  constexpr size_t kShortRun = 8;
  if (runs_.size() * kShortRun > map_.size()) {
    runs_.clear();
    runs_.shrink_to_fit();
  } else {
    map_.clear();
    map_.shrink_to_fit();
  }
}

void ShuffleAction::run(Runtime& runtime) {
  const auto* in = runtime.at<const float>(in_);
  auto* out = runtime.at<float>(out_);
  if (runs_.empty()) {
    parallel_for(0, std::ssize(map_), kGrain,
                 [&](int64_t begin, int64_t end) { gather(in, out + begin, map_.data() + begin, end - begin); });
    return;
  }
  parallel_for(0, std::ssize(runs_), 512, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Run& run = runs_[static_cast<size_t>(i)];
      const size_t bytes = static_cast<size_t>(run.length) * sizeof(float);
      if (run.in < 0) {
        std::memset(out + run.out, 0, bytes);
      } else {
        std::memcpy(out + run.out, in + run.in, bytes);
      }
    }
  });
}

BinaryAction::BinaryAction(BinaryKind kind, int32_t a, const Shape& a_shape, int32_t b, const Shape& b_shape,
                           int32_t out, const Shape& out_shape)
    : kind_(kind), a_(a), b_(b), out_(out) {
  const size_t rank = out_shape.size();
  const auto strides_of = [&](const Shape& shape) {
    at::DimVector strides(rank, 0);
    int64_t stride = 1;
    for (size_t i = shape.size(); i-- > 0;) {
      if (shape[i] != 1) strides[i + rank - shape.size()] = stride;
      stride *= shape[i];
    }
    return strides;
  };
  const at::DimVector a_strides = strides_of(a_shape);
  const at::DimVector b_strides = strides_of(b_shape);
  for (size_t i = 0; i < rank; ++i) {
    if (out_shape[i] == 1) continue;
    const bool merges = !dims_.empty() && a_strides_.back() == a_strides[i] * out_shape[i] &&
                        b_strides_.back() == b_strides[i] * out_shape[i];
    if (merges) {
      dims_.back() *= out_shape[i];
      a_strides_.back() = a_strides[i];
      b_strides_.back() = b_strides[i];
    } else {
      dims_.push_back(out_shape[i]);
      a_strides_.push_back(a_strides[i]);
      b_strides_.push_back(b_strides[i]);
    }
  }
  if (dims_.empty()) {
    dims_ = {1};
    a_strides_ = b_strides_ = {1};
  }
}

void BinaryAction::run(Runtime& runtime) {
  const auto* a = runtime.at<const float>(a_);
  const auto* b = runtime.at<const float>(b_);
  auto* out = runtime.at<float>(out_);
  const BinaryRow row = row_of(kind_);
  const int64_t inner = dims_.back();
  const int64_t a_step = a_strides_.back();
  const int64_t b_step = b_strides_.back();
  if (dims_.size() == 1) {
    parallel_for(0, inner, kGrain, [&](int64_t begin, int64_t end) {
      row(a + begin * a_step, b + begin * b_step, out + begin, end - begin, a_step, b_step);
    });
    return;
  }
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < dims_.size(); ++i) rows *= dims_[i];
  parallel_for(0, rows, std::max<int64_t>(1, kGrain / inner), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      int64_t rest = r, a_at = 0, b_at = 0;
      for (size_t i = dims_.size() - 1; i-- > 0;) {
        const int64_t position = rest % dims_[i];
        rest /= dims_[i];
        a_at += position * a_strides_[i];
        b_at += position * b_strides_[i];
      }
      row(a + a_at, b + b_at, out + r * inner, inner, a_step, b_step);
    }
  });
}

void UnaryAction::run(Runtime& runtime) {
  const auto* in = runtime.at<const float>(in_);
  auto* out = runtime.at<float>(out_);
  parallel_for(0, count_, kGrain,
               [&](int64_t begin, int64_t end) { unary(kind_, in + begin, out + begin, end - begin); });
}

void ReduceAction::run(Runtime& runtime) {
  const auto* in = runtime.at<const float>(in_);
  auto* out = runtime.at<float>(out_);
  parallel_for(0, outer_, std::max<int64_t>(1, kGrain / inner_), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* row = in + r * inner_;
      out[r] = kind_ == ReduceKind::Max ? row_max(row, inner_) : row_sum(row, inner_);
      if (kind_ == ReduceKind::Mean) out[r] /= static_cast<float>(inner_);
    }
  });
}

void ConcatAction::run(Runtime& runtime) {
  auto* out = runtime.at<std::byte>(out_);
  for (int64_t row = 0; row < outer_; ++row) {
    for (const auto& [slot, bytes] : parts_) {
      std::memcpy(out, runtime.at<const std::byte>(slot) + row * bytes, static_cast<size_t>(bytes));
      out += bytes;
    }
  }
}

void GatherRowsAction::run(Runtime& runtime) {
  const auto* table = runtime.at<const std::byte>(table_);
  auto* out = runtime.at<std::byte>(out_);
  for (int64_t i = 0; i < count_; ++i) {
    const int64_t index =
        index_type_ == DType::Int64 ? runtime.at<const int64_t>(indices_)[i] : runtime.at<const int32_t>(indices_)[i];
    if (index < -rows_ || index >= rows_) {
      fail(ErrorCode::InvalidInput, where_, "index {} is outside the table's {} rows", index, rows_);
    }
    const int64_t row = index < 0 ? index + rows_ : index;
    std::memcpy(out + i * row_bytes_, table + row * row_bytes_, static_cast<size_t>(row_bytes_));
  }
}

void WidenAction::run(Runtime& runtime) {
  at::from_blob(runtime.at<float>(out_), weights_.sizes(), at::kFloat).copy_(weights_);
}

void AtenAction::run(Runtime& runtime) {
  std::vector<const Value*> inputs(inputs_.size());
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i] >= 0) inputs[i] = &runtime.values[static_cast<size_t>(inputs_[i])];
  }
  std::vector<Value> outputs(outputs_.size());
  Call call(inputs, outputs);
  run_kernel(kernel_, call, node_);
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (outputs_[i] < 0) continue;
    at::Tensor tensor = outputs[i].tensor;
    const auto slot = static_cast<size_t>(outputs_[i]);
    // Later actions read by the shape and type that the trace saw.
    if (outputs[i].type != runtime.types[slot] || tensor.sizes() != at::IntArrayRef(runtime.shapes[slot])) {
      const std::string made =
          outputs[i].defined() ? fmt::format("{}{}", name_of(outputs[i].type), to_string(tensor.sizes())) : "nothing";
      fail(ErrorCode::Internal, node_.label(),
           "output {} is {} where the plan expects {}{}; its operator's facts are wrong", i, made,
           name_of(runtime.types[slot]), to_string(runtime.shapes[slot]));
    }
    tensor = tensor.contiguous();
    // A view of planned memory would change under its holder when that memory is reused.
    if (runtime.in_arena(tensor.data_ptr())) tensor = tensor.clone();
    runtime.set(outputs_[i], {std::move(tensor), outputs[i].type});
  }
}

void HookAction::run(Runtime& runtime) {
  const Value& before = runtime.values[static_cast<size_t>(in_)];
  Value shown = before;
  show_(shown);
  if (shown.type != before.type || shown.tensor.sizes() != before.tensor.sizes()) {
    fail(ErrorCode::InvalidInput, name_, "a hook must return the type and shape that it was shown");
  }
  if (in_ == out_ && shown.tensor.is_same(before.tensor)) return;
  std::memcpy(runtime.at<std::byte>(out_), shown.tensor.contiguous().data_ptr(), static_cast<size_t>(bytes_));
}

void WatchAction::run(Runtime& runtime) { show_({runtime.at<const float>(in_), static_cast<size_t>(count_)}); }

}  // namespace kaon
