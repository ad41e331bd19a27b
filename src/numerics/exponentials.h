#pragma once
#include <cstdint>
#include <span>

namespace kaon {

/// The largest of `count` ≥ 1 numbers; NaN where one of them is.
float row_maximum(const float* x, int64_t count);

/// y = exp(x - top) within 2 ulp, elementwise; returns their sum. `y` may be `x`. Where x - top is NaN, y is 0.
float exponentials(const float* x, float* y, int64_t count, float top);

/// ln Σ exp(x), sums in double; NaN where one of them is.
double log_sum_exp(std::span<const float> row);

}  // namespace kaon
