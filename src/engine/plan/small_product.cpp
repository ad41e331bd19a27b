#include "engine/plan/small_product.h"

#include <algorithm>
#include <cstring>

#include "base/parallel.h"
#include "engine/plan/simd.h"

namespace kaon {

namespace {

constexpr int64_t kLanes = 8;
constexpr int64_t kRows = 4;                   // of a result that are computed together
constexpr int64_t kWorthAThread = 512 * 1024;  // multiplications

using Lanes = float __attribute__((vector_size(kLanes * sizeof(float)), aligned(4)));

/// kRows × (Vectors · kLanes) elements of a·b: sums stay in registers, their terms are added in order.
template <int64_t Vectors>
__attribute__((always_inline)) inline void tile(const float* const* a, const float* b, float* const* out,
                                                int64_t column, int64_t n, int64_t k) {
  Lanes sums[kRows][Vectors] = {};
  for (int64_t term = 0; term < k; ++term) {
    const auto* right = reinterpret_cast<const Lanes*>(b + term * n + column);
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t v = 0; v < Vectors; ++v) sums[row][v] += a[row][term] * right[v];
    }
  }
  for (int64_t row = 0; row < kRows; ++row) {
    auto* to = reinterpret_cast<Lanes*>(out[row] + column);
    for (int64_t v = 0; v < Vectors; ++v) to[v] = sums[row][v];
  }
}

/// Rows of a·b; those beyond the last repeat it.
KAON_SIMD void few_rows(const float* a, const float* b, float* out, int64_t rows, int64_t n, int64_t k) {
  const float* from[kRows];
  float* to[kRows];
  for (int64_t row = 0; row < kRows; ++row) {
    from[row] = a + std::min(row, rows - 1) * k;
    to[row] = out + std::min(row, rows - 1) * n;
  }
  int64_t column = 0;
  for (; column + 2 * kLanes <= n; column += 2 * kLanes) tile<2>(from, b, to, column, n, k);
  for (; column + kLanes <= n; column += kLanes) tile<1>(from, b, to, column, n, k);
  for (; column < n; ++column) {
    float sums[kRows] = {};
    for (int64_t term = 0; term < k; ++term) {
      for (int64_t row = 0; row < kRows; ++row) sums[row] += from[row][term] * b[term * n + column];
    }
    for (int64_t row = 0; row < kRows; ++row) to[row][column] = sums[row];
  }
}

KAON_SIMD void scale_and_shift(float* values, int64_t count, float scale, float shift) {
  for (int64_t i = 0; i < count; ++i) values[i] = values[i] * scale + shift;
}

}  // namespace

void SmallProductsAction::run(Runtime& runtime) {
  const auto* a = runtime.at<const float>(a_);
  const auto* b = runtime.at<const float>(b_);
  auto* out = runtime.at<float>(out_);
  const auto [m, n, k] = sizes_;
  const int64_t groups = (m + kRows - 1) / kRows;
  const int64_t grain = std::max<int64_t>(1, kWorthAThread / (kRows * n * k));
  parallel_for(0, groups * std::ssize(offsets_), grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t product = i / groups;
      const int64_t row = i % groups * kRows;
      const int64_t rows = std::min(kRows, m - row);
      const auto [at_a, at_b] = offsets_[static_cast<size_t>(product)];
      float* to = out + (product * m + row) * n;
      few_rows(a + at_a + row * k, b + at_b, to, rows, n, k);
      for (const auto& [scale, shift] : steps_) scale_and_shift(to, rows * n, scale, shift);
    }
  });
}

}  // namespace kaon
