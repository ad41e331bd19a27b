#pragma once
#include <functional>

#include "graph/pass.h"

/// One file each; pass.cpp lists them in order.
namespace kaon::passes {

int64_t upgrade_opset(Model& model, const PassContext& context);
/// Constant nodes become initializers.
int64_t constants_to_initializers(Model& model, const PassContext& context);
/// Identity, and Dropout as inference sees it, disappear.
int64_t eliminate_identity(Model& model, const PassContext& context);
/// Nodes that read only constants become initializers.
int64_t constant_folding(Model& model, const PassContext& context);
/// BatchNormalization right after a layer goes into its weight and bias.
int64_t fold_batch_norm(Model& model, const PassContext& context);
/// Float weights of layers inside subgraphs move to the outermost graph; equal ones become one.
int64_t hoist_weights(Model& model, const PassContext& context);
/// Nodes and initializers that no output depends on disappear, and the infos of values that are gone.
int64_t remove_dead_nodes(Model& model, const PassContext& context);

/// The sum of `change` over the graph and the graphs inside it, innermost last.
int64_t in_every_graph(Graph& graph, const std::function<int64_t(Graph&)>& change);

}  // namespace kaon::passes
