#pragma once
#include <functional>
#include <limits>
#include <optional>

#include "graph/graph.h"

namespace kaon {

/// What a node leaves of its input's range.
struct ClipBounds {
  float low = std::numeric_limits<float>::lowest();
  float high = std::numeric_limits<float>::max();
};

/// The bounds of a Relu, or of a Clip by its attributes (until opset 10) or inputs; nothing for other nodes and where a
/// bound is not known. `constant(i)` is the number at input i, which has a name.
std::optional<ClipBounds> clip_bounds(const Node& node, const std::function<std::optional<float>(size_t)>& constant);

}  // namespace kaon
