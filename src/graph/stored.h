#pragma once
#include <string>

#include "graph/graph.h"
#include "numerics/float_view.h"

namespace kaon {

/// float16 and bfloat16.
bool is_half(DType type);
/// Whether float_view() takes it: float32, float16, bfloat16.
bool is_float(const Tensor& tensor);
FloatView float_view(const Tensor& tensor);
/// The same numbers as float32; shares the data where they are that already.
Tensor widened(const Tensor& tensor);

/// Where the numbers of a float32 constant are stored: an initializer, or the 16-bit one behind a Cast to float32.
/// nullptr where `value` is neither.
const Initializer* find_stored(const Graph& graph, const std::string& value);
/// The constant `value`, which find_stored() finds, is an initializer with these numbers from here on.
void store(Graph& graph, const std::string& value, Tensor tensor);

}  // namespace kaon
