#pragma once
#include "graph/graph.h"

namespace kaon {

/// Up to this version every incompatible change of ONNX's operators is known here.
inline constexpr int64_t kNewestKnownOpset = 26;

/// Rewrites ONNX's own operators, in subgraphs too, to what version `target` says, and raises the IR version with it.
/// A model that is there already, or beyond, is left as it is. Returns how many nodes were rewritten.
/// Throws Unsupported, naming the node, where an operator changed its meaning in a way no rule covers.
int64_t upgrade_opset(Model& model, int64_t target = 21);

}  // namespace kaon
