#pragma once
#include "graph/graph.h"

namespace kaon {

/// Throws InvalidInput, naming the node and the value, unless every value is made exactly once and before it is read,
/// every graph output is made, and names and attributes are not given twice. Subgraphs see the values around them.
void verify(const Model& model);
void verify(const Graph& graph);

/// Brings the nodes of `graph` and its subgraphs into an order where every value is made before it is read, moving as
/// few as possible. Throws InvalidInput, naming the nodes, where they form a cycle. Values that nothing makes are left
/// for verify() to report.
void sort_nodes(Graph& graph);

}  // namespace kaon
