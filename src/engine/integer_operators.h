#pragma once
#include "graph/graph.h"

namespace kaon {

/// QLinearConv, QLinearMatMul, QGemm and QLinearAdd with constant parameters become what they stand for: Conv, MatMul,
/// Gemm or Add between DequantizeLinear and QuantizeLinear. Plans run convolutions and sums on codes, and products in
/// float32. Values keep their names. Others stay, and are interpreted.
void unfold_integer_operators(Graph& graph);

}  // namespace kaon
