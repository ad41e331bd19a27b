#include "graph/clip.h"

#include <algorithm>

namespace kaon {

std::optional<ClipBounds> clip_bounds(const Node& node, const std::function<std::optional<float>(size_t)>& constant) {
  if (!node.domain.empty()) return std::nullopt;
  ClipBounds bounds;
  if (node.op == "Relu") {
    bounds.low = 0;
    return bounds;
  }
  if (node.op != "Clip") return std::nullopt;
  bounds.low = node.get_float("min", bounds.low);
  bounds.high = node.get_float("max", bounds.high);
  for (size_t i = 1; i < std::min<size_t>(node.inputs.size(), 3); ++i) {
    if (node.inputs[i].empty()) continue;
    const std::optional<float> bound = constant(i);
    if (!bound) return std::nullopt;
    (i == 1 ? bounds.low : bounds.high) = *bound;
  }
  return bounds;
}

}  // namespace kaon
