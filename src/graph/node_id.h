#pragma once
#include <string>
#include <string_view>

#include "graph/graph.h"

namespace kaon {

/// What a node is known by however many come and go around it: its first output, since every value is made once. "" for
/// a node that makes nothing.
const std::string& node_id(const Node& node);
/// Throws InvalidInput where no node of `graph` has this id.
const Node& node_by_id(const Graph& graph, std::string_view id);

/// One reader of a value: input `input` of the node with this id.
struct Reader {
  std::string node;
  int64_t input = 0;
  bool operator==(const Reader&) const = default;
  auto operator<=>(const Reader&) const = default;
};

}  // namespace kaon
