#pragma once
#include "graph/graph.h"

namespace kaon {

/// QLinearConv and QLinearAdd with constant parameters become what they stand for, DequantizeLinear, Conv or Add, and
/// QuantizeLinear, which plans run on codes. Values keep their names. Others stay, and are interpreted.
void unfold_integer_operators(Graph& graph);

}  // namespace kaon
