#pragma once
#include "graph/graph.h"

namespace kaon {

/// Whether layers of `model` multiply, or its inputs or outputs are, float16 or bfloat16.
bool computes_in_half(const Model& model);

/// What was computed in float16 or bfloat16 is computed in float32: inputs and outputs keep their types behind Casts,
/// and so do matrices and larger constants as they are stored. Does nothing unless computes_in_half().
void compute_in_float32(Model& model);

}  // namespace kaon
