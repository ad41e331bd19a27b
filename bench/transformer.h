#pragma once
#include "graph/graph.h"

namespace kaon::bench {

/// A pre-norm decoder without mask and embedding, random weights: x [batch, tokens, width] -> y, the same shape.
Model make_transformer(int64_t layers, int64_t width, int64_t heads, int64_t tokens);

}  // namespace kaon::bench
