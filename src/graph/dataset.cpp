#include "graph/dataset.h"

#include <algorithm>

#include "base/error.h"

namespace kaon {

namespace {

/// The first dimension that the inputs fix, or 0.
int64_t fixed_batch(const Graph& graph) {
  int64_t fixed = 0;
  std::string fixed_by;
  for (const ValueInfo& input : graph.required_inputs()) {
    if (!input.shape || input.shape->empty()) continue;
    const int64_t size = input.shape->front().value.value_or(0);
    if (size <= 0) continue;
    if (fixed != 0 && size != fixed) {
      fail(ErrorCode::Unsupported, input.name,
           "its first dimension is {} and that of '{}' is {}; the first dimension must count the samples", size,
           fixed_by, fixed);
    }
    fixed = size;
    fixed_by = input.name;
  }
  return fixed;
}

/// All exponent bits set: NaN or Inf.
template <class Bits>
int64_t first_non_finite(std::span<const std::byte> bytes, Bits exponent) {
  constexpr int64_t kStride = 4096;
  const auto* values = reinterpret_cast<const Bits*>(bytes.data());
  const int64_t size = std::ssize(bytes) / static_cast<int64_t>(sizeof(Bits));
  for (int64_t begin = 0; begin < size; begin += kStride) {
    const int64_t end = std::min(size, begin + kStride);
    Bits found = 0;  // without a branch: vectorized
    for (int64_t i = begin; i < end; ++i) found |= static_cast<Bits>((values[i] & exponent) == exponent);
    for (int64_t i = begin; found != 0 && i < end; ++i) {
      if ((values[i] & exponent) == exponent) return i;
    }
  }
  return -1;
}

int64_t first_non_finite(const Tensor& tensor) {
  switch (tensor.type()) {
    case DType::Float32: return first_non_finite<uint32_t>(tensor.bytes(), 0x7f800000U);
    case DType::Float64: return first_non_finite<uint64_t>(tensor.bytes(), 0x7ff0000000000000U);
    case DType::Float16: return first_non_finite<uint16_t>(tensor.bytes(), 0x7c00U);
    case DType::BFloat16: return first_non_finite<uint16_t>(tensor.bytes(), 0x7f80U);
    default: return -1;
  }
}

}  // namespace

int64_t batch_for(const Graph& graph, int64_t wanted) {
  if (wanted < 1) fail(ErrorCode::InvalidInput, "batch", "is {}; it must be at least 1", wanted);
  const int64_t fixed = fixed_batch(graph);
  return fixed > 0 ? fixed : wanted;
}

int64_t batch_for(const Graph& graph, int64_t wanted, const Dataset& data) {
  const int64_t batch = batch_for(graph, wanted);
  if (data.size() < 1) fail(ErrorCode::InvalidInput, "data", "the dataset is empty");
  if (fixed_batch(graph) > 0 && data.size() % batch != 0) {
    fail(ErrorCode::InvalidInput, "data",
         "the model takes {} samples at a time, and {} samples leave {} over; limit them to a multiple of {}", batch,
         data.size(), data.size() % batch, batch);
  }
  return batch;
}

void check_finite(const Batch& batch, int64_t first) {
  for (const auto& [name, tensor] : batch.inputs) {
    const int64_t at = first_non_finite(tensor);
    if (at < 0) continue;
    const int64_t samples = tensor.rank() == 0 ? 1 : tensor.shape().front();
    const int64_t per_sample = tensor.size() / samples;
    Shape index;
    int64_t rest = at % per_sample;
    for (int64_t axis = tensor.rank() - 1; axis > 0; --axis) {
      const int64_t extent = tensor.shape()[static_cast<size_t>(axis)];
      index.insert(index.begin(), rest % extent);
      rest /= extent;
    }
    fail(ErrorCode::InvalidInput, name, "sample {} has a NaN or Inf at element {}; data must be finite",
         first + at / per_sample, to_string(index));
  }
}

}  // namespace kaon
