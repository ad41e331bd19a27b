#pragma once
#include <string>
#include <vector>

#include "engine/op_facts.h"
#include "graph/graph.h"

namespace kaon {

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
  const Graph& graph_;
  Uses uses_;
};

}  // namespace kaon
