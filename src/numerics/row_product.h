#pragma once
#include <cstdint>

#include "numerics/float_view.h"

namespace kaon {

/// One row of numbers times a matrix that is read where it lies, as it is stored.
struct StoredMatrix {
  const void* data = nullptr;
  FloatView::Type type = FloatView::Type::Float32;
  int64_t row_length = 0;  ///< elements from one row to the next
};

/// y[i] = x · (row `first + i` of the matrix), plus bias[i] unless that is null, for `count` rows of `width` elements.
void dot_rows(const float* x, const StoredMatrix& matrix, int64_t first, const float* bias, float* y, int64_t count,
              int64_t width);

/// y[i] = Σ x[k] · matrix[k][first + i] over `rows` rows, plus bias[i] unless that is null, for `count` columns.
void sum_rows(const float* x, const StoredMatrix& matrix, int64_t first, const float* bias, float* y, int64_t count,
              int64_t rows);

}  // namespace kaon
