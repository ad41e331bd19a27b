#pragma once
#include <cstdint>
#include <string_view>

#include "numerics/float_view.h"

namespace kaon {

/// How many numbers a statistic met and left out.
struct NonFinite {
  int64_t nan = 0;
  int64_t pos_inf = 0;
  int64_t neg_inf = 0;

  int64_t total() const { return nan + pos_inf + neg_inf; }
  void merge(const NonFinite& other);
  bool operator==(const NonFinite&) const = default;
};

// What the streaming statistics have in common: a tensor is cut into chunks, the unit of work for threads, and those
// into blocks that stay in the first-level cache while a kernel goes over them more than once. Both are counted from
// the first element, so a result does not depend on the number of threads.

inline constexpr int64_t kBlock = 2048;
inline constexpr int64_t kChunk = 32 * kBlock;

/// Throws InvalidInput, naming `what`, where the view has a negative size or no data.
void check_view(const FloatView& view, std::string_view what);

/// in[begin, begin + count) as float32: the data itself where possible, else converted into `scratch`.
/// count <= kBlock; the view may start at any byte.
const float* load_floats(const FloatView& in, int64_t begin, int64_t count, float* scratch);

/// `sum` is rounded to float32; it is not finite where any value is not, and min and max then mean nothing.
struct BlockRange {
  float min;
  float max;
  float sum;
};
/// count >= 1.
BlockRange block_range(const float* values, int64_t count);

/// Raises amax[0], amax[1] … to the largest finite magnitude in each tile of `tile` values; the first value is the one
/// at `offset` of its tile.
void raise_amax(const float* values, int64_t count, int64_t tile, int64_t offset, float* amax);

/// Copies the finite values to `out`, counts the others, returns how many were copied.
int64_t keep_finite(const float* values, int64_t count, float* out, NonFinite& others);

}  // namespace kaon
