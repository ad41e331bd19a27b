#include "quant/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "quant/networks_test.h"
#include "quant/schemes.h"

namespace kaon {
namespace {

QuantizedModel place(const char* scheme) { return place_quantizers(residual_network(), scheme_config(scheme)); }

/// "id slots tensor", one line for each quantizer.
std::string list(const QuantizedModel& quantized) {
  std::string text;
  for (const Quantizer& quantizer : quantized.quantizers) {
    text += quantizer.tensor + ":";
    for (const Served& served : quantizer.serves) text += " " + served.layer + "." + std::string(name_of(served.slot));
    for (const std::string& moved : quantizer.moved) text += " =" + moved;
    text += "\n";
  }
  return text;
}

TEST(Placement, StaticSchemesQuantizeWhatFlowsBetweenLayers) {
  EXPECT_EQ(list(place("w8a8")),
            "x: conv1.input\n"
            "conv1.weight: conv1.weight\n"
            "conv1.bias: conv1.bias\n"
            "r1: conv1.output conv2.input\n"
            "conv2.weight: conv2.weight\n"
            "conv2.bias: conv2.bias\n"
            "c2: conv2.output\n"
            "r2: block.output\n"
            "pooled: pooled.output fc.input =flat\n"
            "fc.weight: fc.weight\n"
            "fc.bias: fc.bias\n"
            "y: fc.output\n");
}

TEST(Placement, InputOnlySchemesLeaveTheRestFloat) {
  EXPECT_EQ(list(place("fp8")),
            "x: conv1.input\n"
            "conv1.weight: conv1.weight\n"
            "r1: conv2.input\n"
            "conv2.weight: conv2.weight\n"
            "flat: fc.input\n"
            "fc.weight: fc.weight\n");
  const QuantizedModel quantized = place("fp8");
  // The residual connection reads r1 as well, and must see it in float.
  const Quantizer& shared = *quantized.find("conv2", Slot::Input);
  EXPECT_EQ(shared.readers, (std::vector<Reader>{{"c2", 0}}));
}

TEST(Placement, AxesFollowFromTheLayer) {
  const QuantizedModel per_channel = place("w8c");
  EXPECT_EQ(per_channel.find("conv1", Slot::Weight)->spec.axis, 0);
  EXPECT_EQ(per_channel.find("fc", Slot::Weight)->spec.axis, 0);
  const QuantizedModel per_group = place("w4g32");
  EXPECT_EQ(per_group.find("conv1", Slot::Weight)->spec.axis, 1);
  EXPECT_EQ(per_group.find("fc", Slot::Weight)->spec.axis, 1);
}

TEST(Placement, ConvolutionsOfFewChannelsFallBackAndSaySo) {
  Model model = make_model({make_node("Conv", {"x", "w"}, {"y"}, {{"group", int64_t{8}, {}}})},
                           {random_constant("w", {8, 1, 3, 3}, 1)}, {make_value("x", {1, 8, 6, 6})}, {"y"});
  const QuantizedModel quantized = place_quantizers(model, scheme_config("mxfp4"));
  EXPECT_EQ(quantized.quantizers.size(), 1U);
  EXPECT_EQ(quantized.quantizers[0].spec.format, "int8");
  EXPECT_EQ(quantized.quantizers[0].spec.granularity, Granularity::PerChannel);
  ASSERT_EQ(quantized.skipped.size(), 1U);
  EXPECT_EQ(quantized.skipped[0].reason,
            "weight is int8 per channel, input float: 1 input channels per group are too few for mxfp4");
}

QuantizedModel place(const char* scheme, const char* config) {
  return place_quantizers(residual_network(),
                          parse_config(nlohmann::ordered_json::parse(config), "c.json", scheme_config(scheme)));
}

TEST(Placement, RulesMergeKeyByKey) {
  const QuantizedModel quantized = place("w8a8c", R"({
    "by_type": {"Conv": {"weight": {"symmetric": false}}},
    "by_name": {"conv2": {"weight": {"format": "int16"}}, "fc": {"output": {"format": "uint16"}}}})");
  const TensorSpec& conv1 = quantized.find("conv1", Slot::Weight)->spec;
  EXPECT_EQ(conv1.format, "int8");
  EXPECT_FALSE(conv1.symmetric);
  const TensorSpec& conv2 = quantized.find("conv2", Slot::Weight)->spec;
  EXPECT_EQ(conv2.format, "int16");
  EXPECT_EQ(conv2.granularity, Granularity::PerChannel);
  EXPECT_FALSE(conv2.symmetric);
  EXPECT_TRUE(quantized.find("fc", Slot::Weight)->spec.symmetric);
  EXPECT_EQ(quantized.find("fc", Slot::Output)->spec.format, "uint16");
  EXPECT_FALSE(quantized.find("fc", Slot::Output)->spec.symmetric);
}

TEST(Placement, OperatorsBetweenLayersFollowRulesOfTheirOwn) {
  const QuantizedModel by_type =
      place("w8a8c", R"({"by_type": {"Add": {"output": {"format": "uint16", "observer": "mse"}}}})");
  EXPECT_EQ(by_type.find("block", Slot::Output)->spec.format, "uint16");
  EXPECT_FALSE(by_type.find("block", Slot::Output)->spec.symmetric);
  EXPECT_EQ(by_type.find("block", Slot::Output)->observer.name, "mse");
  // What is computed from it goes on from there.
  EXPECT_EQ(by_type.find("pooled", Slot::Output)->spec.format, "uint16");
  const QuantizedModel by_name = place("w8a8c", R"({"by_name": {"b*": {"output": {"symmetric": true}}}})");
  EXPECT_TRUE(by_name.find("block", Slot::Output)->spec.symmetric);
  EXPECT_EQ(by_name.find("block", Slot::Output)->spec.format, "uint8");
  // A pattern may be about layers and operators alike, of which only layers have weights.
  const QuantizedModel both = place("w8a8c", R"({"by_name": {"*": {"weight": {"granularity": "per_tensor"}}}})");
  EXPECT_EQ(both.find("conv1", Slot::Weight)->spec.granularity, Granularity::PerTensor);
  EXPECT_EQ(both.find("block", Slot::Output)->spec.format, "uint8");
}

TEST(Placement, OperatorsBetweenLayersCanBeExcluded) {
  for (const char* config : {R"({"exclude": ["block"]})", R"({"by_type": {"Add": {"output": null}}})",
                             R"({"by_name": {"bloc[a-k]": {"output": null}}})"}) {
    const QuantizedModel quantized = place("w8a8c", config);
    EXPECT_EQ(quantized.find("block", Slot::Output), nullptr);
    EXPECT_EQ(quantized.find("pooled", Slot::Output), nullptr);  // it reads floats now
    EXPECT_EQ(quantized.find("fc", Slot::Input)->kind, Slot::Input);
    EXPECT_NE(quantized.find("conv2", Slot::Output), nullptr);
  }
  const auto error = [](const char* config) {
    return error_of(ErrorCode::InvalidConfig, [&] { place("w8a8c", config); });
  };
  EXPECT_EQ(error(R"({"by_type": {"Concat": {"output": null}}})"),
            "by_type: 'Concat' matches no layer of this model; did you mean 'Conv'?");
  EXPECT_EQ(error(R"({"by_type": {"Add": {"input": null}}})"),
            "by_type: Add: only layers have a rule for 'input'; an operator between them has 'output'");
}

/// Values that are quantized more than once on the way to one reader.
int64_t twice(const QuantizedModel& quantized) {
  int64_t count = 0;
  for (const Quantizer& a : quantized.quantizers) {
    for (const Quantizer& b : quantized.quantizers) {
      const bool moved = std::find(a.moved.begin(), a.moved.end(), b.tensor) != a.moved.end();
      if (&a != &b && a.readers.empty() && (a.tensor == b.tensor || moved)) ++count;
    }
  }
  return count;
}

TEST(Placement, AValueIsQuantizedOnceToTheFinerOfWhatItsMakerAndItsReadersAsk) {
  const QuantizedModel quantized = place("w8a8c", R"({"by_name": {"conv2": {"input": {"format": "uint16"}}}})");
  EXPECT_EQ(twice(quantized), 0);
  EXPECT_EQ(quantized.find("conv2", Slot::Input), quantized.find("conv1", Slot::Output));
  EXPECT_EQ(quantized.find("conv2", Slot::Input)->spec.format, "uint16");
  // The sum reads it too, and follows the rules of the layers before it.
  EXPECT_EQ(quantized.find("block", Slot::Output)->spec.format, "uint8");
  ASSERT_EQ(quantized.skipped.size(), 1U);
  EXPECT_EQ(quantized.skipped[0].layer, "conv1");
  EXPECT_EQ(quantized.skipped[0].reason,
            "output is uint16 per_tensor asymmetric, not uint8 per_tensor asymmetric: conv2.input asks for it");

  // Through what moves values as well.
  const QuantizedModel moved = place("w8a8c", R"({"by_name": {"fc": {"input": {"format": "uint16"}}}})");
  EXPECT_EQ(twice(moved), 0);
  EXPECT_EQ(moved.find("pooled", Slot::Output)->spec.format, "uint16");

  const QuantizedModel coarser = place("w8a8c", R"({"by_name": {"fc": {"input": {"format": "uint4"}}}})");
  EXPECT_EQ(twice(coarser), 0);
  EXPECT_EQ(coarser.find("fc", Slot::Input)->spec.format, "uint8");
  ASSERT_EQ(coarser.skipped.size(), 1U);
  EXPECT_EQ(coarser.skipped[0].reason,
            "input is uint8 per_tensor asymmetric, not uint4 per_tensor asymmetric: pooled.output asks for it");
}

TEST(Placement, WhereNeitherIsFinerTheMoreSpecialRuleWins) {
  const QuantizedModel reader = place("w8a8c", R"({"by_name": {"conv2": {"input": {"symmetric": true}}}})");
  EXPECT_TRUE(reader.find("conv1", Slot::Output)->spec.symmetric);
  EXPECT_EQ(reader.skipped.at(0).reason,
            "output is uint8 per_tensor symmetric, not uint8 per_tensor asymmetric: conv2.input asks for it");
  const QuantizedModel maker = place("w8a8c", R"({"by_name": {"conv1": {"output": {"symmetric": true}}}})");
  EXPECT_TRUE(maker.find("conv2", Slot::Input)->spec.symmetric);
  EXPECT_EQ(maker.skipped.at(1).reason,
            "input is uint8 per_tensor symmetric, not uint8 per_tensor asymmetric: conv1.output asks for it");
}

TEST(Placement, WhereNoRuleWinsBothAreNamed) {
  const auto error = [](const char* by_name) {
    const std::string config = fmt::format(R"({{"by_name": {}}})", by_name);
    return error_of(ErrorCode::InvalidConfig, [&] { place("w8a8c", config.c_str()); });
  };
  EXPECT_EQ(error(R"({"conv1": {"output": {"symmetric": true}}, "conv[2-9]": {"input": {"format": "int8"}}})"),
            "conv2.input: is to be int8 per_tensor asymmetric (by_name: conv[2-9]), but what it reads is uint8 "
            "per_tensor symmetric (conv1.output: by_name: conv1); a value is quantized once: make them equal, or one "
            "of them null");
  EXPECT_EQ(error(R"({"conv2": {"input": {"dynamic": true}}})"),
            "conv2.input: is to be uint8 per_tensor asymmetric dynamic (by_name: conv2), but what it reads is uint8 "
            "per_tensor asymmetric (conv1.output: scheme w8a8c); a value is quantized once: make them equal, or one "
            "of them null");
}

TEST(Placement, TheObserverOfTheMoreSpecialRuleLearnsASharedRange) {
  const auto observer = [](const char* config) {
    return place("w8a8c", config).find("conv2", Slot::Input)->observer.name;
  };
  EXPECT_EQ(observer(R"({"by_name": {"conv2": {"input": {"observer": "mse"}}}})"), "mse");
  EXPECT_EQ(observer(R"({"by_type": {"Conv": {"output": {"observer": "entropy"}}}})"), "entropy");
  EXPECT_EQ(observer(R"({"global": {"input": {"observer": "mse"}, "output": {"observer": "entropy"}}})"), "entropy");
}

TEST(Placement, AnOperatorThatReadsUnequalValuesStaysFloatAndSaysSo) {
  const QuantizedModel quantized = place("w8a8c", R"({"by_name": {"conv2": {"output": {"format": "uint16"}}}})");
  EXPECT_EQ(quantized.find("block", Slot::Output), nullptr);
  ASSERT_EQ(quantized.skipped.size(), 1U);
  EXPECT_EQ(quantized.skipped[0].layer, "block");
  EXPECT_EQ(quantized.skipped[0].reason,
            "output stays float: what it reads is uint16 per_tensor asymmetric and uint8 per_tensor asymmetric");
  const QuantizedModel said = place("w8a8c", R"({"by_name": {"conv2": {"output": {"format": "uint16"}},
                                                            "block": {"output": {"format": "uint8", "symmetric": false}}}})");
  EXPECT_EQ(said.find("block", Slot::Output)->spec.format, "uint8");
  EXPECT_FALSE(said.find("block", Slot::Output)->spec.symmetric);
}

TEST(Placement, ARuleForAnOperatorThatReadsUnequalValuesMergesWithTheFinerOne) {
  const QuantizedModel quantized = place("w8a8c", R"({"by_name": {"conv2": {"output": {"format": "uint16"}}},
                                                      "by_type": {"Add": {"output": {"format": "uint8"}}}})");
  EXPECT_EQ(quantized.find("block", Slot::Output)->spec.format, "uint8");
  EXPECT_FALSE(quantized.find("block", Slot::Output)->spec.symmetric);
  // One that names no format is about others.
  EXPECT_EQ(place("w8a8c", R"({"by_name": {"conv2": {"output": {"format": "uint16"}}},
                               "by_type": {"Add": {"output": {"symmetric": true}}}})")
                .find("block", Slot::Output),
            nullptr);
}

TEST(Placement, ARuleForAnOperatorThatReadsFloatsSaysThatItDoesNothing) {
  const QuantizedModel quantized = place("w8c", R"({"by_type": {"Add": {"output": {"format": "uint8"}}}})");
  EXPECT_EQ(quantized.find("block", Slot::Output), nullptr);
  ASSERT_EQ(quantized.skipped.size(), 1U);
  EXPECT_EQ(quantized.skipped[0].layer, "block");
  EXPECT_EQ(quantized.skipped[0].reason, "output stays float: not all of what it reads is quantized with one scale");
}

TEST(Placement, RulesByNameWinOverRulesByTypeAndTheGlobalOne) {
  Config config = scheme_config("w8");
  Spec four;
  four.format = "int4";
  Spec two;
  two.format = "int2";
  LayerRule by_type;
  by_type.weight = four;
  LayerRule by_name;
  by_name.weight = two;
  config.by_type = {{"Conv", by_type}};
  config.by_name = {{"*2", by_name}};
  const QuantizedModel quantized = place_quantizers(residual_network(), config);
  EXPECT_EQ(quantized.find("conv1", Slot::Weight)->spec.format, "int4");
  EXPECT_EQ(quantized.find("conv2", Slot::Weight)->spec.format, "int2");
  EXPECT_EQ(quantized.find("fc", Slot::Weight)->spec.format, "int8");
}

TEST(Placement, ExcludedLayersStayFloat) {
  Config config = scheme_config("w8a8");
  config.exclude = {"fc"};
  const QuantizedModel quantized = place_quantizers(residual_network(), config);
  EXPECT_EQ(quantized.find("fc", Slot::Weight), nullptr);
  EXPECT_EQ(quantized.find("fc", Slot::Output), nullptr);
  EXPECT_NE(quantized.find("conv2", Slot::Weight), nullptr);
}

Model embedding(int64_t rows) {
  return make_model({make_node("Gather", {"table", "ids"}, {"rows"}), make_node("MatMul", {"rows", "w"}, {"y"})},
                    {random_constant("table", {rows, 16}, 1), random_constant("w", {16, 64}, 2)},
                    {make_value("ids", {3}, DType::Int64)}, {"y"});
}

TEST(Placement, TablesAreQuantizedUnlessActivationsAreStatic) {
  struct Row {
    const char* scheme;
    const char* format;  ///< nullptr: the table stays float
    Granularity granularity;
  };
  using enum Granularity;
  for (const Row& row :
       {Row{"w8", "int8", PerTensor}, Row{"w8c", "int8", PerChannel}, Row{"w4g32", "int8", PerChannel},
        Row{"w4c", "int8", PerChannel}, Row{"w8a8d", "int8", PerTensor}, Row{"fp16", "float16", PerTensor},
        Row{"w8a8c", nullptr, PerTensor}, Row{"mxfp4", nullptr, PerTensor}, Row{"fp8", nullptr, PerTensor}}) {
    const QuantizedModel quantized = place_quantizers(embedding(100), scheme_config(row.scheme));
    const Quantizer* table = quantized.find("rows", Slot::Weight);
    ASSERT_EQ(table != nullptr, row.format != nullptr) << row.scheme;
    if (table == nullptr) continue;
    EXPECT_EQ(table->spec.format, row.format) << row.scheme;
    EXPECT_EQ(table->spec.granularity, row.granularity) << row.scheme;
    if (row.granularity == PerChannel) {
      EXPECT_EQ(table->spec.axis, 0) << row.scheme;
    }
  }
}

TEST(Placement, AWeightOnTheLeftHasOneScaleWhereOnnxRuntimeWantsIt) {
  const Model model = make_model({make_node("MatMul", {"w", "x"}, {"y"})}, {random_constant("w", {8, 16}, 1)},
                                 {make_value("x", {16, 4})}, {"y"});
  const auto granularity = [&](Layout layout) {
    Config config = scheme_config("w8a8c");
    set_layout(config, layout);
    const QuantizedModel quantized = place_quantizers(model, config);
    const Granularity of_weight = quantized.find("y", Slot::Weight)->spec.granularity;
    EXPECT_EQ(quantized.skipped.size(), of_weight == Granularity::PerTensor ? 1U : 0U);
    return of_weight;
  };
  EXPECT_EQ(granularity(Layout::U8S8), Granularity::PerChannel);
  EXPECT_EQ(granularity(Layout::U8U8), Granularity::PerTensor);
  EXPECT_EQ(granularity(Layout::S8S8), Granularity::PerTensor);
}

TEST(Placement, SmallTablesWaitForARule) {
  Config config = scheme_config("w8");
  EXPECT_EQ(place_quantizers(embedding(10), config).quantizers.size(), 1U);
  LayerRule rule;
  rule.weight = Spec{};
  config.by_type = {{"Gather", rule}};
  EXPECT_EQ(place_quantizers(embedding(10), config).quantizers.size(), 2U);
}

TEST(Placement, ATableWithInfinitiesStaysFloat) {
  Model model = embedding(100);
  std::vector<float> values = random_values(1600, 1);
  values[7] = -INFINITY;
  model.graph.find_initializer("table")->tensor = Tensor::of({100, 16}, values);
  const QuantizedModel quantized = place_quantizers(model, scheme_config("w8"));
  ASSERT_EQ(quantized.skipped.size(), 1U);
  EXPECT_EQ(quantized.skipped[0].reason, "stays as it is: the table holds NaN or Inf");
  EXPECT_EQ(quantized.skipped[0].bytes, 6400);
}

TEST(Placement, WhatStaysFloatIsListedWithItsBytes) {
  const QuantizedModel quantized = place_quantizers(embedding(100), scheme_config("w8a8"));
  ASSERT_EQ(quantized.skipped.size(), 1U);
  EXPECT_EQ(quantized.skipped[0].layer, "rows");
  EXPECT_EQ(quantized.skipped[0].bytes, 6400);
  EXPECT_EQ(quantized.skipped[0].reason,
            "stays float: 6400 bytes, 61.0 % of the model's constants, read by Gather 'rows'");
  EXPECT_TRUE(place_quantizers(embedding(100), scheme_config("w8")).skipped.empty());
  Config config = scheme_config("w8");
  config.exclude = {"rows"};
  EXPECT_EQ(place_quantizers(embedding(100), config).skipped.at(0).bytes, 6400);
}

TEST(Placement, PatternsThatMatchNothingAreErrors) {
  Config config = scheme_config("w8");
  config.exclude = {"conv3"};
  EXPECT_EQ(error_of(ErrorCode::InvalidConfig, [&] { place_quantizers(residual_network(), config); }),
            "exclude: 'conv3' matches no layer of this model; did you mean 'conv1'?");
  config.exclude.clear();
  config.by_type = {{"Convv", {}}};
  EXPECT_NE(error_of(ErrorCode::InvalidConfig, [&] { place_quantizers(residual_network(), config); }).find("'Conv'"),
            std::string::npos);
  config.by_type = {{"Gather", {}}};
  EXPECT_NE(error_of(ErrorCode::InvalidConfig, [&] { place_quantizers(residual_network(), config); })
                .find("matches no layer"),
            std::string::npos);
  config.by_type.clear();
  config.exclude = {"*"};
  EXPECT_NE(error_of(ErrorCode::InvalidConfig, [&] { place_quantizers(residual_network(), config); })
                .find("no layer of this model to quantize"),
            std::string::npos);
}

}  // namespace
}  // namespace kaon
