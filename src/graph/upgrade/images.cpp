#include <algorithm>

#include "graph/upgrade/rules.h"

namespace kaon::upgrade {

namespace {

std::vector<Node> upsample_scales(Node node, Editor&) {
  const std::vector<float> scales{1.0F, 1.0F, node.get_float("height_scale", 1.0F),
                                  node.get_float("width_scale", 1.0F)};
  node.erase("height_scale");
  node.erase("width_scale");
  node.set("scales", scales);
  return {node};
}

std::vector<Node> upsample_input(Node node, Editor& editor) {
  const auto* scales = node.get_if<std::vector<float>>("scales");
  if (scales == nullptr || node.inputs.empty()) unsupported(node, "it has no scales");
  const Tensor tensor = Tensor::of({std::ssize(*scales)}, *scales);
  node.erase("scales");
  node.inputs.resize(1);
  node.inputs.push_back(editor.constant(node, "scales", tensor));
  return {node};
}

std::vector<Node> upsample_to_resize(Node node, Editor&) {
  node.op = "Resize";
  return {node};
}

/// Version 10 samples at x / scale. Its nearest neighbour is the one below, or above where it shrinks, as ONNX Runtime
/// reads it; scales that are not constant are taken to enlarge.
std::vector<Node> resize_coordinates(Node node, Editor& editor) {
  if (node.inputs.size() != 2) unsupported(node, "it has no scales");
  if (node.get_string("mode", "nearest") == "nearest") {
    bool shrinks = false, enlarges = false;
    if (const Tensor* scales = editor.find_constant(node.inputs[1])) {
      const std::vector<float> values = scales->to_float();
      shrinks = std::any_of(values.begin(), values.end(), [](float scale) { return scale < 1.0F; });
      enlarges = std::any_of(values.begin(), values.end(), [](float scale) { return scale > 1.0F; });
    }
    if (shrinks && enlarges) unsupported(node, "it shrinks one axis and enlarges another");
    node.set("nearest_mode", std::string(shrinks ? "ceil" : "floor"));
  }
  node.set("coordinate_transformation_mode", std::string("asymmetric"));
  const std::string roi =
      editor.target() < 13 ? editor.constant(node, "roi", Tensor::of({0}, std::vector<float>{})) : "";
  node.inputs = {node.inputs[0], roi, node.inputs[1]};
  return {node};
}

/// Version 13 takes omitted inputs instead of empty ones, and has one coordinate mode less.
std::vector<Node> resize_omitted(Node node, Editor& editor) {
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    const Tensor* tensor = editor.find_constant(node.inputs[i]);
    if (tensor != nullptr && tensor->size() == 0) node.inputs[i].clear();
  }
  while (!node.inputs.empty() && node.inputs.back().empty()) node.inputs.pop_back();
  if (node.get_string("coordinate_transformation_mode", "half_pixel") == "tf_half_pixel_for_nn") {
    // It samples at half_pixel + ½: the floor of that is half_pixel rounded, and rounding that is half_pixel's ceiling.
    const std::string nearest = node.get_string("nearest_mode", "round_prefer_floor");
    if (node.get_string("mode", "nearest") != "nearest" || (nearest != "floor" && nearest != "round_prefer_floor")) {
      unsupported(node, "tf_half_pixel_for_nn is only known with nearest_mode floor and round_prefer_floor");
    }
    node.set("coordinate_transformation_mode", std::string("half_pixel"));
    node.set("nearest_mode", std::string(nearest == "floor" ? "round_prefer_ceil" : "ceil"));
  }
  return {node};
}

std::vector<Node> roi_align(Node node, Editor&) {
  node.set("coordinate_transformation_mode", std::string("output_half_pixel"));
  return {node};
}

std::vector<Node> grid_sample(Node node, Editor&) {
  const std::string mode = node.get_string("mode", "bilinear");
  if (mode == "bilinear") node.set("mode", std::string("linear"));
  if (mode == "bicubic") node.set("mode", std::string("cubic"));
  return {node};
}

}  // namespace

std::vector<Change> image_changes() {
  return {
      {"GridSample", 20, grid_sample},      {"Resize", 11, resize_coordinates}, {"Resize", 13, resize_omitted},
      {"RoiAlign", 16, roi_align},          {"Upsample", 7, upsample_scales},   {"Upsample", 9, upsample_input},
      {"Upsample", 10, upsample_to_resize},
  };
}

}  // namespace kaon::upgrade
