#include "graph/upgrade/rules.h"

namespace kaon::upgrade {

namespace {

/// Version 8 has a batch axis before the sequence axis: a scan over the batch around a scan over the sequence.
std::vector<Node> scan(Node node, Editor& editor) {
  if (!node.inputs[0].empty()) unsupported(node, "it gives sequence lengths");
  const auto* body = node.get_if<std::shared_ptr<Graph>>("body");
  const int64_t scanned = node.get_int("num_scan_inputs", 0);
  if (body == nullptr || std::ssize((*body)->inputs) + 1 != std::ssize(node.inputs) ||
      (*body)->outputs.size() != node.outputs.size()) {
    unsupported(node, "its body does not fit its inputs and outputs");
  }
  Node inner = node;
  const std::vector<int64_t> directions = node.get_ints("directions");
  inner.erase("directions");
  if (!directions.empty()) inner.set("scan_input_directions", directions);
  inner.name = node.name.empty() ? "" : node.name + "_sequence";
  inner.inputs.clear();
  inner.outputs.clear();

  Graph batch;
  batch.name = (*body)->name + "_batch";
  for (const ValueInfo& input : (*body)->inputs) {
    inner.inputs.push_back(editor.name(node, input.name));
    ValueInfo info;
    info.name = inner.inputs.back();
    info.type = input.type;
    batch.inputs.push_back(info);
  }
  for (const ValueInfo& output : (*body)->outputs) {
    inner.outputs.push_back(editor.name(node, output.name));
    ValueInfo info;
    info.name = inner.outputs.back();
    info.type = output.type;
    batch.outputs.push_back(info);
  }
  if (scanned < 1 || scanned > std::ssize(inner.inputs)) unsupported(node, "num_scan_inputs is out of range");
  editor.set_version(inner, 9);
  batch.nodes.push_back(std::move(inner));

  node.erase("directions");
  node.inputs.erase(node.inputs.begin());
  node.set("num_scan_inputs", static_cast<int64_t>(node.inputs.size()));
  node.set("body", std::make_shared<Graph>(std::move(batch)));
  return {node};
}

}  // namespace

std::vector<Change> scan_changes() { return {{"Scan", 9, scan}}; }

}  // namespace kaon::upgrade
