#pragma once
#include "graph/tensor.h"

namespace kaon {

/// The first element that is NaN or Inf, or -1; integers have none.
int64_t first_non_finite(const Tensor& tensor);

/// Where element `element` of a dense tensor lies: one number for each axis.
Shape index_at(const Shape& shape, int64_t element);

}  // namespace kaon
