#include "quant/flow.h"

namespace kaon {

FlowKind ValueFlow::kind(int64_t index) const {
  const Node& node = graph_.nodes[static_cast<size_t>(index)];
  if (node.inputs.empty() || node.outputs.empty()) return FlowKind::Other;
  return facts_of(node, graph_).flow;
}

std::vector<std::string> ValueFlow::data_inputs(int64_t index) const {
  const Node& node = graph_.nodes[static_cast<size_t>(index)];
  return kaon::data_inputs(node, facts_of(node, graph_));
}

std::string ValueFlow::covered_output(const std::string& value) const {
  std::string last = value;
  while (!uses_.is_output(last)) {
    const std::vector<int64_t>& readers = uses_.consumers(last);
    if (readers.size() != 1) break;
    const Node& reader = graph_.nodes[static_cast<size_t>(readers[0])];
    if (!facts_of(reader, graph_).clips || reader.inputs[0] != last) break;
    last = reader.outputs[0];
  }
  return last;
}

}  // namespace kaon
