#pragma once
#include "graph/graph.h"

namespace kaon {

/// The sliding window of a convolution or pooling node, spatial axes only, automatic padding worked out.
struct Window {
  Shape kernel;
  Shape strides;
  Shape dilations;
  Shape pads_begin;
  Shape pads_end;

  /// `input` is the whole input shape [N, C, spatial…].
  static Window of(const Node& node, const Shape& input, Shape kernel);
};

}  // namespace kaon
