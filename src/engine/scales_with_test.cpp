#include "engine/scales_with.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/engine.h"
#include "graph/build_test.h"

namespace kaon {
namespace {

Attribute whole(const char* name, int64_t value) { return {name, value, {}}; }

Tensor numbers(const Shape& shape, uint64_t seed, float factor) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(element_count(shape)));
  for (float& value : values) value = normal(generator) * factor;
  return Tensor::of(shape, values);
}

TEST(ScalesWith, WhatIsSaidIsSo) {
  const std::string microsoft = "com.microsoft";
  const std::vector<std::pair<Node, std::vector<Shape>>> all = {
      {make_node("Mul", {"a", "b"}, {"y"}), {{2, 3}, {3}}},
      {make_node("Div", {"a", "b"}, {"y"}), {{2, 3}, {3}}},
      {make_node("MatMul", {"a", "b"}, {"y"}), {{2, 3}, {3, 4}}},
      {make_node("FusedMatMul", {"a", "b"}, {"y"}), {{2, 3}, {3, 4}}},
      {make_node("LayerNormalization", {"a", "b", "c"}, {"y"}), {{2, 3}, {3}, {3}}},
      {make_node("LayerNormalization", {"a", "b"}, {"y"}), {{2, 3}, {3}}},
      {make_node("RMSNormalization", {"a", "b"}, {"y"}), {{2, 3}, {3}}},
      {make_node("SimplifiedLayerNormalization", {"a", "b"}, {"y"}), {{2, 3}, {3}}},
      {make_node("SkipLayerNormalization", {"a", "b", "c", "d"}, {"y"}), {{1, 2, 3}, {1, 2, 3}, {3}, {3}}},
      {make_node("SkipSimplifiedLayerNormalization", {"a", "b", "c"}, {"y"}), {{1, 2, 3}, {1, 2, 3}, {3}}},
      {make_node("Attention", {"a", "b", "c"}, {"y"}, {whole("q_num_heads", 2), whole("kv_num_heads", 1)}),
       {{1, 3, 8}, {1, 3, 4}, {1, 3, 4}}},
  };
  for (auto [node, shapes] : all) {
    SCOPED_TRACE(node.op);
    const bool skip = node.op.starts_with("Skip") || node.op.starts_with("Fused");
    if (skip) node.domain = microsoft;
    std::vector<ValueInfo> inputs;
    for (size_t i = 0; i < shapes.size(); ++i) inputs.push_back(make_value(node.inputs[i], shapes[i]));
    Model model = make_model({node}, {}, inputs, {"y"}, 23);
    model.opsets[microsoft] = 1;
    Engine engine(model);
    const auto run = [&](const std::vector<size_t>& scaled) {
      TensorMap given;
      for (size_t i = 0; i < shapes.size(); ++i) {
        const bool larger = std::ranges::find(scaled, i) != scaled.end();
        given[node.inputs[i]] = numbers(shapes[i], i + 1, larger ? 4 : 1);  // a power of two: no rounding
      }
      return engine.run(given)[0].to_float();
    };
    const std::vector<float> before = run({});
    const auto sets = scales_with(node);
    ASSERT_FALSE(sets.empty());
    for (const std::vector<size_t>& set : sets) {
      ASSERT_FALSE(set.empty());
      const std::vector<float> after = run(set);
      for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(after[i], 4 * before[i]);
    }
  }
}

TEST(ScalesWith, AloneMeansWithoutTheOthersOfItsSet) {
  const Graph graph;
  EXPECT_TRUE(scales_alone(make_node("LayerNormalization", {"x", "gain"}, {"y"}), graph, 1));
  EXPECT_FALSE(scales_alone(make_node("LayerNormalization", {"x", "gain", "shift"}, {"y"}), graph, 1));
  EXPECT_TRUE(scales_alone(make_node("Relu", {"x"}, {"y"}), graph, 0));
  EXPECT_FALSE(scales_alone(make_node("Add", {"x", "z"}, {"y"}), graph, 0));
  EXPECT_FALSE(scales_alone(make_node("Div", {"x", "z"}, {"y"}), graph, 1));
  EXPECT_FALSE(scales_alone(make_node("Nonesuch", {"x"}, {"y"}), graph, 0));
}

}  // namespace
}  // namespace kaon
