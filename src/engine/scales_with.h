#pragma once
#include <vector>

#include "graph/graph.h"

namespace kaon {

/// Sets of inputs of `node`: where those of one set are s > 0 times as large, all others unchanged, so is its first
/// output. Inputs that the node does not have are left out. What op_facts.h says is homogeneous need not be here.
std::vector<std::vector<size_t>> scales_with(const Node& node);

/// Whether the first output of `node` is s times as large wherever its input `input` alone is; of an operator that is
/// homogeneous, every output.
bool scales_alone(const Node& node, const Graph& graph, size_t input);

}  // namespace kaon
