#include "quant/scale_groups.h"

#include <gtest/gtest.h>

#include <map>

#include "quant/placement.h"
#include "quant/schemes.h"
#include "quant/transformer_test.h"

namespace kaon {
namespace {

/// Names of the products, by the name of what takes their factors.
std::map<std::string, std::vector<std::string>> found_in(const Model& model) {
  const QuantizedModel quantized = place_quantizers(model, scheme_config("w8c"));
  std::map<std::string, std::vector<std::string>> names;
  for (const ScaleGroup& group : find_scale_groups(quantized, transformer_data())) {
    for (const ScaleGroup::Product& product : group.products) names[group.name].push_back(product.layer->name);
  }
  return names;
}

const std::map<std::string, std::vector<std::string>> kAll = {
    {"norm1", {"q", "k", "v"}}, {"v", {"out"}}, {"norm2", {"gate", "up"}}, {"up", {"down"}}};

TEST(ScaleGroups, OfABlockWithItsOwnOperators) { EXPECT_EQ(found_in(fused_block()), kAll); }

TEST(ScaleGroups, OfABlockAsPyTorchExportsIt) { EXPECT_EQ(found_in(exported_block()), kAll); }

TEST(ScaleGroups, KeyHeadsThatQueriesShareStandAtSeveralPlaces) {
  const QuantizedModel quantized = place_quantizers(fused_block(), scheme_config("w8c"));
  for (const ScaleGroup& group : find_scale_groups(quantized, transformer_data())) {
    if (group.name != "v") continue;
    ASSERT_EQ(group.channels, 8);
    std::vector<int64_t> expected;
    for (const int64_t head : {0, 0, 1, 1}) {
      for (int64_t i = 0; i < 4; ++i) expected.push_back(head * 4 + i);
    }
    EXPECT_EQ(group.carried[group.products[0].carried].channel, expected);
    return;
  }
  FAIL() << "v is not found";
}

TEST(ScaleGroups, APartOfAFusedProduct) {
  Model model = make_model(
      {make_node("Reshape", {"x", "rows"}, {"x2"}), make_node("Gemm", {"x2", "both.weight", "both.bias"}, {"both"}),
       make_node("Split", {"both", "halves"}, {"gate", "up"}, {{"axis", int64_t{-1}, {}}}),
       make_node("Sigmoid", {"gate"}, {"gated"}), make_node("Mul", {"gated", "up"}, {"h"}),
       make_node("Gemm", {"h", "down.weight"}, {"y"})},
      {random_constant("both.weight", {16, 24}, 1),
       random_constant("both.bias", {24}, 2),
       random_constant("down.weight", {12, 16}, 3),
       {"halves", Tensor::of<int64_t>({2}, std::vector<int64_t>{12, 12}), {}, {}},
       {"rows", Tensor::of<int64_t>({2}, std::vector<int64_t>{-1, 16}), {}, {}}},
      {make_value("x", {0, 5, 16})}, {"y"});
  model.graph.inputs[0].shape->front() = {std::nullopt, "N"};
  const QuantizedModel quantized = place_quantizers(model, scheme_config("w8c"));
  const std::vector<ScaleGroup> groups = find_scale_groups(quantized, transformer_data());
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].name, "both");
  const std::vector<int64_t>& channel = groups[0].carried[groups[0].products[0].carried].channel;
  for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(channel.at(static_cast<size_t>(i)), 12 + i);
}

TEST(ScaleGroups, AValueThatIsReadElsewhereTooIsNone) {
  Model model = fused_block();
  model.graph.outputs.push_back(make_value("n1"));
  auto expected = kAll;
  expected.erase("norm1");
  EXPECT_EQ(found_in(model), expected);
}

TEST(ScaleGroups, WhatMixesChannelsIsNone) {
  // A mean of neighbours is homogeneous, and no channel comes out of it as it went in.
  const auto groups_with = [](const char* op, std::vector<Attribute> attributes) {
    Model model = make_model(
        {make_node("LayerNormalization", {"x", "g"}, {"n"}, {{"axis", int64_t{-1}, {}}}),
         make_node(op, {"n"}, {"m"}, std::move(attributes)), make_node("MatMul", {"m", "w"}, {"y"})},
        {random_constant("g", {16}, 1), random_constant("w", {16, 4}, 2)}, {make_value("x", {0, 5, 16})}, {"y"});
    model.graph.inputs[0].shape->front() = {std::nullopt, "N"};
    const QuantizedModel quantized = place_quantizers(model, scheme_config("w8c"));
    return find_scale_groups(quantized, transformer_data()).size();
  };
  EXPECT_EQ(groups_with("LeakyRelu", {}), 1U);
  EXPECT_EQ(groups_with("AveragePool",
                        {{"kernel_shape", std::vector<int64_t>{3}, {}}, {"pads", std::vector<int64_t>{1, 1}, {}}}),
            0U);
}

}  // namespace
}  // namespace kaon
