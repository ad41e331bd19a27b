#include "quant/flow.h"

#include <set>

namespace kaon {

FlowKind ValueFlow::kind(int64_t index) const {
  static const std::set<std::string, std::less<>> moves = {
      "DepthToSpace", "Expand", "Flatten",      "Gather", "GlobalMaxPool", "Identity", "MaxPool",   "Relu",
      "Reshape",      "Slice",  "SpaceToDepth", "Split",  "Squeeze",       "Tile",     "Transpose", "Unsqueeze"};
  static const std::set<std::string, std::less<>> computes = {"Add", "AveragePool", "Concat", "GlobalAveragePool",
                                                              "Mul"};
  const Node& node = graph_.nodes[static_cast<size_t>(index)];
  if (!node.domain.empty() || node.inputs.empty() || node.outputs.empty()) return FlowKind::Other;
  if (moves.contains(node.op)) return FlowKind::Moves;
  if (computes.contains(node.op)) return FlowKind::Computes;
  if (node.op == "Pad") return pads_with_zero(node) ? FlowKind::Moves : FlowKind::Other;
  if (node.op == "Resize" || node.op == "Upsample") {
    return node.get_string("mode", "nearest") == "nearest" ? FlowKind::Moves : FlowKind::Other;
  }
  return FlowKind::Other;
}

bool ValueFlow::pads_with_zero(const Node& node) const {
  if (node.get_string("mode", "constant") != "constant") return true;
  if (node.inputs.size() < 3 || node.inputs[2].empty()) return node.get_float("value", 0) == 0;
  const Initializer* value = graph_.find_initializer(node.inputs[2]);
  if (value == nullptr || value->tensor.size() != 1) return false;
  return value->tensor.to_float()[0] == 0;
}

std::vector<std::string> ValueFlow::data_inputs(int64_t index) const {
  const Node& node = graph_.nodes[static_cast<size_t>(index)];
  const bool all = node.op == "Add" || node.op == "Mul" || node.op == "Concat";
  return all ? node.inputs : std::vector<std::string>{node.inputs[0]};
}

std::string ValueFlow::covered_output(const std::string& value) const {
  std::string last = value;
  while (!uses_.is_output(last)) {
    const std::vector<int64_t>& readers = uses_.consumers(last);
    if (readers.size() != 1) break;
    const Node& reader = graph_.nodes[static_cast<size_t>(readers[0])];
    const bool clips = reader.domain.empty() && (reader.op == "Relu" || reader.op == "Clip");
    if (!clips || reader.inputs[0] != last) break;
    last = reader.outputs[0];
  }
  return last;
}

}  // namespace kaon
