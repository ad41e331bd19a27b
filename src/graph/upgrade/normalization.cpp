#include "graph/upgrade/rules.h"

namespace kaon::upgrade {

namespace {

/// Before version 13 the axes from `axis` on were taken together.
std::vector<Node> softmax(Node node, Editor& editor) {
  const int64_t axis = node.get_int("axis", 1);
  const std::optional<int64_t> rank = editor.rank_of(node.inputs[0]);
  if (axis == -1 || (rank && axis == *rank - 1)) {
    node.set("axis", axis);
    return {node};
  }
  Node flatten = editor.helper(node, "flat", "Flatten", {node.inputs[0]});
  flatten.set("axis", axis);
  Node shape = editor.helper(node, "shape", "Shape", {node.inputs[0]});
  Node reshape = editor.helper(node, "flat_result", "Reshape", {});
  std::swap(reshape.outputs, node.outputs);
  reshape.inputs = {node.outputs[0], shape.outputs[0]};
  node.inputs[0] = flatten.outputs[0];
  node.set("axis", int64_t{-1});
  return {flatten, node, shape, reshape};
}

std::vector<Node> drop_is_test(Node node, Editor&) {
  node.erase("is_test");
  return {node};
}

std::vector<Node> batch_norm_spatial(Node node, Editor&) {
  if (node.get_int("spatial", 1) == 0) unsupported(node, "spatial = 0 has no counterpart");
  node.erase("spatial");
  return {node};
}

/// Keeps the first output alone; the others changed their meaning and nobody may read them.
std::vector<Node> only_first_output(Node node, Editor& editor) {
  for (size_t i = 1; i < node.outputs.size(); ++i) {
    if (editor.is_read(node.outputs[i])) unsupported(node, "its output '" + node.outputs[i] + "' is for training");
  }
  if (node.outputs.size() > 1) node.outputs.resize(1);
  return {node};
}

std::vector<Node> dropout_ratio(Node node, Editor& editor) {
  if (const auto* ratio = node.get_if<float>("ratio")) {
    node.inputs.push_back(editor.constant(node, "ratio", Tensor::scalar(*ratio)));
    node.erase("ratio");
  }
  return {node};
}

/// Scale and bias come per group before version 21 and per channel since.
std::vector<Node> group_norm(Node node, Editor& editor) {
  if (node.inputs.size() != 3) unsupported(node, "it needs three inputs");
  const int64_t groups = node.get_int("num_groups", 1);
  Node channels = editor.helper(node, "channels", "Shape", {node.inputs[0]});
  channels.set("start", int64_t{1});
  channels.set("end", int64_t{2});
  Node per_group = editor.helper(node, "channels_per_group", "Div",
                                 {channels.outputs[0], editor.constant(node, "groups", int64_vector({groups}))});
  const std::string one = editor.constant(node, "one", int64_vector({1}));
  Node repeats = editor.helper(node, "repeats", "Concat", {one, per_group.outputs[0]});
  repeats.set("axis", int64_t{0});
  const std::string column = editor.constant(node, "column", int64_vector({-1, 1}));
  const std::string flat = editor.constant(node, "flat", int64_vector({-1}));
  std::vector<Node> nodes{channels, per_group, repeats};
  for (size_t i = 1; i < 3; ++i) {
    const std::string suffix = i == 1 ? "scale" : "bias";
    nodes.push_back(editor.helper(node, suffix + "_column", "Reshape", {node.inputs[i], column}));
    nodes.push_back(editor.helper(node, suffix + "_tiled", "Tile", {nodes.back().outputs[0], repeats.outputs[0]}));
    nodes.push_back(editor.helper(node, suffix, "Reshape", {nodes.back().outputs[0], flat}));
    node.inputs[i] = nodes.back().outputs[0];
  }
  nodes.push_back(node);
  return nodes;
}

}  // namespace

std::vector<Change> normalization_changes() {
  return {
      {"BatchNormalization", 7, drop_is_test},
      {"BatchNormalization", 9, batch_norm_spatial},
      {"BatchNormalization", 14, only_first_output},
      {"Dropout", 7, drop_is_test},
      {"Dropout", 10, only_first_output},
      {"Dropout", 12, dropout_ratio},
      {"GroupNormalization", 21, group_norm},
      {"Hardmax", 13, softmax},
      {"LogSoftmax", 13, softmax},
      {"Softmax", 13, softmax},
  };
}

}  // namespace kaon::upgrade
