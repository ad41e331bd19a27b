#pragma once
// Small networks and data for the tests of quantization.
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "graph/build_test.h"
#include "graph/dataset.h"

namespace kaon {

inline std::vector<float> random_values(int64_t count, uint64_t seed, float spread = 1) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

inline Initializer random_constant(const std::string& name, const Shape& shape, uint64_t seed, float spread = 0.3F) {
  return make_constant(name, shape, random_values(element_count(shape), seed, spread));
}

/// Samples that lie in memory under the name "x".
class MemoryDataset : public Dataset {
 public:
  MemoryDataset(Shape shape, std::vector<float> values) : shape_(std::move(shape)), values_(std::move(values)) {}

  int64_t size() const override { return shape_.front(); }
  bool has_labels() const override { return false; }
  Batch read(int64_t first, int64_t count) const override {
    Shape shape = shape_;
    shape.front() = count;
    const int64_t each = element_count(shape_) / shape_.front();
    const auto part = std::span(values_).subspan(static_cast<size_t>(first * each), static_cast<size_t>(count * each));
    return {{{"x", Tensor::of<float>(shape, part)}}, {}};
  }

 private:
  Shape shape_;
  std::vector<float> values_;
};

/// x [N,16,6,6] -> conv1 + Relu -> conv2 -> Add with conv1's -> Relu -> GlobalAveragePool -> Flatten -> fc -> y [N,4].
inline Model residual_network() {
  std::vector<Node> nodes = {
      make_node("Conv", {"x", "conv1.weight", "conv1.bias"}, {"c1"}, {{"pads", std::vector<int64_t>{1, 1, 1, 1}, {}}}),
      make_node("Relu", {"c1"}, {"r1"}),
      make_node("Conv", {"r1", "conv2.weight", "conv2.bias"}, {"c2"}, {{"pads", std::vector<int64_t>{1, 1, 1, 1}, {}}}),
      make_node("Add", {"c2", "r1"}, {"sum"}),
      make_node("Relu", {"sum"}, {"r2"}),
      make_node("GlobalAveragePool", {"r2"}, {"pooled"}),
      make_node("Flatten", {"pooled"}, {"flat"}),
      make_node("Gemm", {"flat", "fc.weight", "fc.bias"}, {"y"}, {{"transB", int64_t{1}, {}}}),
  };
  nodes[3].name = "/block/Add";
  Model model = make_model(std::move(nodes),
                           {random_constant("conv1.weight", {16, 16, 3, 3}, 1), random_constant("conv1.bias", {16}, 2),
                            random_constant("conv2.weight", {16, 16, 3, 3}, 3), random_constant("conv2.bias", {16}, 4),
                            random_constant("fc.weight", {4, 16}, 5), random_constant("fc.bias", {4}, 6)},
                           {make_value("x", {0, 16, 6, 6})}, {"y"});
  model.graph.inputs[0].shape->front() = {std::nullopt, "N"};
  return model;
}

inline MemoryDataset residual_data(int64_t samples = 12) {
  return {{samples, 16, 6, 6}, random_values(samples * 16 * 36, 7)};
}

/// Twice: Conv -> Relu -> BatchNormalization.
inline Model norms_behind_relus() {
  const Attribute pads{"pads", std::vector<int64_t>{1, 1, 1, 1}, {}};
  std::vector<Node> nodes;
  std::vector<Initializer> constants;
  std::string value = "x";
  uint64_t seed = 1;
  for (const std::string part : {"a", "b"}) {
    nodes.push_back(make_node("Conv", {value, part + ".weight"}, {part + "1"}, {pads}));
    nodes.push_back(make_node("Relu", {part + "1"}, {part + "2"}));
    nodes.push_back(make_node("BatchNormalization",
                              {part + "2", part + ".gain", part + ".shift", part + ".mean", part + ".variance"},
                              {part + "3"}));
    constants.push_back(random_constant(part + ".weight", {16, 16, 3, 3}, seed++));
    constants.push_back(random_constant(part + ".gain", {16}, seed++, 1));
    constants.push_back(random_constant(part + ".shift", {16}, seed++, 1));
    constants.push_back(make_constant(part + ".mean", {16}, std::vector<float>(16, 1.5F)));
    constants.push_back(make_constant(part + ".variance", {16}, std::vector<float>(16, 4)));
    value = part + "3";
  }
  nodes.push_back(make_node("Conv", {value, "c.weight"}, {"y"}));
  constants.push_back(random_constant("c.weight", {4, 16, 1, 1}, seed));
  Model model = make_model(std::move(nodes), std::move(constants), {make_value("x", {0, 16, 6, 6})}, {"y"});
  model.graph.inputs[0].shape->front() = {std::nullopt, "N"};
  return model;
}

/// x [N,8,6,6] -> expand 1x1 to 16 + Clip(0,6) -> depthwise 3x3 + Clip(0,6) -> project 1x1 to 8. The channels between
/// are multiplied by powers of two, and what reads them divided.
inline Model inverted_residual(bool planted) {
  const auto scaled = [&](const std::string& name, const Shape& shape, uint64_t seed, bool by_output, int octave_of) {
    std::vector<float> values = random_values(element_count(shape), seed, 0.3F);
    const auto each = static_cast<size_t>(element_count(shape) / shape[by_output ? 0 : 1]);
    for (size_t i = 0; i < values.size() && planted; ++i) {
      const size_t channel = by_output ? i / each : i % static_cast<size_t>(shape[1]);
      const float factor = std::exp2(static_cast<float>((channel * 7 + static_cast<size_t>(octave_of)) % 11) - 5);
      values[i] *= by_output ? factor : 1 / factor;
    }
    return make_constant(name, shape, values);
  };
  const Attribute pads{"pads", std::vector<int64_t>{1, 1, 1, 1}, {}};
  std::vector<Node> nodes = {
      make_node("Conv", {"x", "a.weight", "a.bias"}, {"a"}),
      make_node("Relu", {"a"}, {"ra"}),
      make_node("Conv", {"ra", "b.weight", "b.bias"}, {"b"}, {pads, {"group", int64_t{16}, {}}}),
      make_node("Relu", {"b"}, {"rb"}),
      make_node("Conv", {"rb", "c.weight", "c.bias"}, {"y"}),
  };
  Model model = make_model(std::move(nodes),
                           {scaled("a.weight", {16, 8, 1, 1}, 1, true, 0), scaled("a.bias", {16}, 2, true, 0),
                            random_constant("b.weight", {16, 1, 3, 3}, 3), random_constant("b.bias", {16}, 4),
                            scaled("c.weight", {8, 16, 1, 1}, 5, false, 0), random_constant("c.bias", {8}, 6)},
                           {make_value("x", {0, 8, 6, 6})}, {"y"});
  model.graph.inputs[0].shape->front() = {std::nullopt, "N"};
  return model;
}

}  // namespace kaon
