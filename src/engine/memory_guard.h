#pragma once
#include <span>

#include "graph/tensor.h"

namespace kaon {

/// From now on ATen's allocations on the CPU are checked with require_memory() before they are made.
void guard_memory();

/// Throws InvalidInput naming the shape and its bytes where a tensor of it would not fit in memory; for shapes that
/// numbers in a file decide, before anything is made or looped over.
void require_room(std::span<const int64_t> shape, int64_t element_bytes = 4);

}  // namespace kaon
