#include "graph/finite.h"

#include <algorithm>
#include <mutex>

#include "base/parallel.h"

namespace kaon {
namespace {

/// All exponent bits set: NaN or Inf. The first such in [begin, end), or `end`.
template <class Bits>
int64_t first_between(const Bits* values, Bits exponent, int64_t begin, int64_t end) {
  constexpr int64_t kStride = 4096;
  for (; begin < end; begin += kStride) {
    const int64_t stop = std::min(end, begin + kStride);
    Bits found = 0;  // without a branch: vectorized
    for (int64_t i = begin; i < stop; ++i) found |= static_cast<Bits>((values[i] & exponent) == exponent);
    for (int64_t i = begin; found != 0 && i < stop; ++i) {
      if ((values[i] & exponent) == exponent) return i;
    }
  }
  return end;
}

template <class Bits>
int64_t first_with(std::span<const std::byte> bytes, Bits exponent) {
  const auto* values = reinterpret_cast<const Bits*>(bytes.data());
  const int64_t size = std::ssize(bytes) / static_cast<int64_t>(sizeof(Bits));
  std::mutex mutex;
  int64_t first = size;
  parallel_for(0, size, int64_t{1} << 18, [&](int64_t begin, int64_t end) {
    const int64_t found = first_between(values, exponent, begin, end);
    const std::lock_guard lock(mutex);
    if (found < end) first = std::min(first, found);
  });
  return first < size ? first : -1;
}

}  // namespace

int64_t first_non_finite(const Tensor& tensor) {
  switch (tensor.type()) {
    case DType::Float32: return first_with<uint32_t>(tensor.bytes(), 0x7f800000U);
    case DType::Float64: return first_with<uint64_t>(tensor.bytes(), 0x7ff0000000000000U);
    case DType::Float16: return first_with<uint16_t>(tensor.bytes(), 0x7c00U);
    case DType::BFloat16: return first_with<uint16_t>(tensor.bytes(), 0x7f80U);
    default: return -1;
  }
}

Shape index_at(const Shape& shape, int64_t element) {
  Shape index(shape.size());
  for (size_t axis = shape.size(); axis-- > 0; element /= shape[axis]) index[axis] = element % shape[axis];
  return index;
}

}  // namespace kaon
