#pragma once
#include <string>
#include <vector>

#include "graph/graph.h"

namespace kaon {

/// What an operator does to numbers that are quantized already.
enum class FlowKind {
  Other,
  Moves,     ///< its outputs hold numbers of its first input and zeros: they stay on its grid
  Computes,  ///< integer runtimes compute it from quantized inputs to a quantized output: Add, Concat, averages …
};

/// How values flow between the layers of a graph.
class ValueFlow {
 public:
  explicit ValueFlow(const Graph& graph) : graph_(graph), uses_(graph) {}

  FlowKind kind(int64_t node) const;
  /// The inputs that carry data, not shapes or axes.
  std::vector<std::string> data_inputs(int64_t node) const;
  /// `value`, or what a Relu or Clip that alone reads it makes of it: one quantizer behind both will do.
  std::string covered_output(const std::string& value) const;

 private:
  bool pads_with_zero(const Node& node) const;

  const Graph& graph_;
  Uses uses_;
};

}  // namespace kaon
