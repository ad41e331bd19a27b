#include "quant/config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "graph/build_test.h"
#include "quant/algorithm.h"
#include "quant/observer.h"
#include "quant/schemes.h"

namespace kaon {
namespace {

using Json = nlohmann::ordered_json;

Config parse(const char* text) { return parse_config(Json::parse(text), "c.json"); }
std::string error_in(const char* text) {
  return error_of(ErrorCode::InvalidConfig, [&] { parse(text); });
}

TEST(Config, EveryKeyIsRead) {
  const Config config = parse(R"({
    "global": {"weight": {"format": "int4", "granularity": "per_group", "axis": 0, "group_size": 64,
                          "symmetric": false, "scale_type": "float16", "rounding": "half_away",
                          "observer": {"name": "percentile", "percentile": 99.5}},
               "input": {"format": "mxfp4", "block_scale": "floor", "dynamic": true}, "output": null},
    "by_type": {"Conv": {"weight": {"format": "int8"}}},
    "by_name": {"layer1.*": {"input": null}},
    "exclude": ["fc"], "algorithms": ["bias_correction"]})");
  const Spec& weight = *config.global.weight.spec;
  EXPECT_EQ(weight.format, "int4");
  EXPECT_EQ(weight.granularity, Granularity::PerGroup);
  EXPECT_EQ(weight.axis, 0);
  EXPECT_EQ(weight.group_size, 64);
  EXPECT_FALSE(weight.symmetric);
  EXPECT_EQ(weight.scale_type, ScaleType::Float16);
  EXPECT_EQ(weight.rounding, Rounding::HalfAway);
  EXPECT_EQ(weight.observer.name, "percentile");
  EXPECT_EQ(weight.observer.options.at("percentile"), 99.5);
  EXPECT_TRUE(config.global.input.spec->dynamic);
  EXPECT_EQ(config.global.input.spec->block_scale, BlockScaleMode::Floor);
  EXPECT_TRUE(config.global.output.given);
  EXPECT_FALSE(config.global.output.spec);
  EXPECT_FALSE(config.global.bias.given);
  EXPECT_EQ(config.by_type.at(0).first, "Conv");
  EXPECT_TRUE(config.by_name.at(0).second.input.given);
  EXPECT_EQ(config.exclude, std::vector<std::string>{"fc"});
  EXPECT_EQ(config.algorithms, std::vector<AlgorithmConfig>{{"bias_correction"}});
}

TEST(Config, ASchemeIsTheBaseOfItsGlobalRule) {
  const Config config = parse(R"({"scheme": "w8a8c", "global": {"output": null}})");
  EXPECT_EQ(config.scheme, "w8a8c");
  EXPECT_EQ(config.global.input, scheme_config("w8a8c").global.input);
  EXPECT_FALSE(config.global.output.spec);
}

/// What "weight" is after `over` went on top of `under`, in words.
std::string merged(const char* under, const char* over) {
  const auto rule = [](const char* spec) {
    return parse(fmt::format(R"({{"by_name": {{"x": {{"weight": {}}}}}}})", spec).c_str()).by_name.at(0).second;
  };
  LayerRule result;
  merge(rule(under), result, "under");
  merge(rule(over), result, "over");
  const Spec& spec = *result.weight.spec;
  return describe(spec) + (spec.axis ? fmt::format(" axis {}", *spec.axis) : "") + " " + spec.observer.name;
}

TEST(Config, RulesMergeKeyByKey) {
  const char* channels = R"({"format": "int8", "granularity": "per_channel", "axis": 1, "observer": "mse"})";
  EXPECT_EQ(merged(channels, R"({"format": "int16"})"), "int16 per_channel symmetric axis 1 mse");
  EXPECT_EQ(merged(channels, R"({"symmetric": false})"), "int8 per_channel asymmetric axis 1 mse");
  EXPECT_EQ(merged(channels, R"({"observer": "min_max"})"), "int8 per_channel symmetric axis 1 min_max");
  EXPECT_EQ(merged(R"({"format": "uint8", "symmetric": false})", R"({"format": "uint16"})"),
            "uint16 per_tensor asymmetric min_max");
  // An axis and a group size belong to a granularity.
  EXPECT_EQ(merged(channels, R"({"granularity": "per_group"})"), "int8 per_group 32 symmetric mse");
  const char* groups = R"({"format": "uint4", "granularity": "per_group", "group_size": 64, "symmetric": false})";
  EXPECT_EQ(merged(groups, R"({"format": "int4"})"), "int4 per_group 64 asymmetric min_max");
  EXPECT_EQ(merged(groups, R"({"group_size": 16})"), "uint4 per_group 16 asymmetric min_max");
  // A format says what does not go with it.
  EXPECT_EQ(merged(groups, R"({"format": "fp8_e4m3"})"), "fp8_e4m3 per_group 64 min_max");
  EXPECT_EQ(merged(groups, R"({"format": "mxfp4"})"), "mxfp4 blocks of 32 min_max");
  EXPECT_EQ(merged(R"({"format": "mxfp4"})", R"({"format": "int8"})"), "int8 per_tensor symmetric min_max");
  EXPECT_EQ(merged(groups, R"({"format": "float16"})"), "float16 min_max");
}

TEST(Config, AWholeSpecReplacesAndNullLeavesFloat) {
  LayerRule rule = scheme_config("w8a8c").global;
  LayerRule over;
  over.weight = Spec{.format = "int4"};
  over.input = SlotRule::stays_float();
  merge(over, rule, "over");
  EXPECT_EQ(describe(*rule.weight.spec), "int4 per_tensor symmetric");
  EXPECT_FALSE(rule.input.spec);
  over.input = parse(R"({"by_name": {"x": {"input": {"symmetric": true}}}})").by_name.at(0).second.input;
  EXPECT_EQ(error_of(ErrorCode::InvalidConfig, [&] { merge(over, rule, "by_name: x"); }),
            "by_name: x: input: names no format, and no rule before it does; `kaon formats` lists them");
}

TEST(Config, AFileGoesOnTopOfAScheme) {
  const Json document = Json::parse(R"({"global": {"output": null, "weight": {"format": "int4"}}, "exclude": ["fc"]})");
  const Config config = parse_config(document, "c.json", scheme_config("w8a8c"));
  EXPECT_EQ(describe(*config.global.weight.spec), "int4 per_channel symmetric");
  EXPECT_FALSE(config.global.output.spec);
  EXPECT_EQ(config.exclude, std::vector<std::string>{"fc"});
  EXPECT_EQ(error_of(ErrorCode::InvalidConfig,
                     [] { parse_config(Json::parse(R"({"scheme": "w8"})"), "c.json", scheme_config("w8a8c")); }),
            "c.json: scheme: 'w8' cannot go on top of the scheme 'w8a8c'; leave one of them out");
}

TEST(Config, RulesThatSaySomeKeysAreReadBack) {
  const char* text = R"({"scheme": "w8a8c", "by_name": {"a": {"input": {"observer": "mse"}, "output": null},
      "b": {"weight": {"group_size": 64, "granularity": "per_group"}}, "c": {"weight": {"block_scale": "floor"}}}})";
  EXPECT_EQ(parse_config(to_json(parse(text)), "c.json"), parse(text));
}

TEST(Config, WhatIsWrittenIsReadBack) {
  for (const auto& [name, scheme] : schemes().items()) {
    const Config config = scheme_config(name);
    EXPECT_EQ(parse_config(to_json(config), "c.json"), config) << name;
  }
}

TEST(Config, ErrorsNameTheKeyAndWhatIsNear) {
  EXPECT_EQ(error_in(R"({"globl": {}})"), "c.json: unknown key 'globl'; did you mean 'global'?");
  EXPECT_EQ(error_in(R"({"global": {"weights": {"format": "int8"}}})"),
            "c.json: global: unknown key 'weights'; did you mean 'weight'?");
  EXPECT_EQ(error_in(R"({"global": {"weight": {"format": "int8", "simmetric": true}}})"),
            "c.json: global: weight: unknown key 'simmetric'; did you mean 'symmetric'?");
  EXPECT_EQ(error_in(R"({"global": {"weight": {"format": "int88"}}})"),
            "c.json: global: weight: format: unknown format 'int88'; did you mean 'int8'?");
  EXPECT_EQ(error_in(R"({"scheme": "w8a8cc"})"), "c.json: scheme: w8a8cc: unknown scheme; did you mean 'w8a8c'?");
  EXPECT_EQ(error_in(R"({"global": {"weight": {"format": "int8", "granularity": "per_row"}}})"),
            "c.json: global: weight: granularity: unknown granularity 'per_row'; known are per_tensor, per_channel, "
            "per_group, per_block, per_token");
  EXPECT_EQ(error_in(R"({"global": {"weight": {"format": "int8", "group_size": 0}}})"),
            "c.json: global: weight: group_size: must be an integer of at least 1, is 0");
  EXPECT_NE(error_in(R"({"global": {"weight": {"format": "int8", "observer": "min_mox"}}})")
                .find("unknown observer 'min_mox'"),
            std::string::npos);
  EXPECT_EQ(error_in(R"({"global": {"weight": {}}})"),
            "c.json: global: weight: says nothing; null leaves a slot float");
  EXPECT_EQ(error_in(R"({"global": {"weight": {"symmetric": false}}})"),
            "c.json: global: weight: names no format, and no rule before it does; `kaon formats` lists them");
  EXPECT_EQ(error_in(R"({"global": {"weight": {"format": "int4", "granularity": "per_channel", "group_size": 16}}})"),
            "c.json: global: weight: group_size: int4 per_channel symmetric has no groups; \"granularity\": "
            "\"per_group\" has");
  EXPECT_EQ(error_in(R"({"scheme": "w8c", "global": {"weight": {"group_size": 16}}})"),
            "c.json: global: weight: group_size: int8 per_channel symmetric has no groups; \"granularity\": "
            "\"per_group\" has");
  EXPECT_EQ(error_in(R"({"algorithms": ["bias"]})"), "c.json: algorithms: unknown algorithm 'bias'; known are " +
                                                         fmt::format("{}", fmt::join(algorithms().names(), ", ")));
  EXPECT_EQ(error_in(R"({"algorithms": [{"name": "bias_correction", "strength": 1}]})"),
            "c.json: algorithms: algorithm bias_correction has no option 'strength'; it has sequential");
  EXPECT_NE(error_in(R"({"algorithms": [{"strength": 1}]})").find("an algorithm is a name, or an object with a name"),
            std::string::npos);
  EXPECT_NE(error_in(R"({"algorithms": "bias_correction"})").find("must be a list"), std::string::npos);
  EXPECT_NE(error_in("[]").find("must be an object"), std::string::npos);
}

TEST(Config, AFileThatIsNoJsonIsNamed) {
  const std::string path = testing::TempDir() + "kaon_config_test.json";
  const auto error_with = [&](const std::string& text) {
    std::ofstream(path) << text;
    return error_of(ErrorCode::InvalidConfig, [&] { read_config(path); });
  };
  EXPECT_NE(error_with("{").find("is not JSON"), std::string::npos);
  EXPECT_EQ(error_with(R"({"by_name": {"a": {"input": null}, "a": {"output": null}}})"),
            path + ": the key 'a' stands twice in one object");
  EXPECT_EQ(error_with(R"({"by_name": )" + std::string(100000, '[')), path + ": JSON nested deeper than 64 levels");
  std::filesystem::remove(path);
  EXPECT_NE(error_of(ErrorCode::Io, [] { read_config("no/such.json"); }).find("no/such.json"), std::string::npos);
}

TEST(Config, TheDocumentationIsWholeAndItsExamplesAreRead) {
  std::ifstream file(KAON_SOURCE_DIR "/docs/config.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  int examples = 0;
  constexpr std::string_view kFence = "```json\n";
  for (size_t at = text.find(kFence); at != std::string::npos; at = text.find(kFence, at + 1)) {
    const size_t begin = at + kFence.size();
    parse_config(Json::parse(text.substr(begin, text.find("```", begin) - begin)), "docs/config.md");
    ++examples;
  }
  EXPECT_EQ(examples, 2);
  const auto mentions = [&](std::string_view name) {
    EXPECT_NE(text.find(fmt::format("`{}`", name)), std::string::npos) << name;
  };
  for (const auto& [name, observer] : observers().items()) {
    mentions(name);
    for (const Option& option : observer.options) mentions(option.name);
  }
  for (const auto& [name, algorithm] : algorithms().items()) {
    mentions(name);
    for (const Option& option : algorithm.options) mentions(option.name);
  }
  for (const auto& [name, value] : EnumNames<Granularity>::kAll) mentions(name);
  for (const auto& [name, value] : EnumNames<ScaleType>::kAll) mentions(name);
  for (const auto& [name, value] : EnumNames<Rounding>::kAll) mentions(name);
  const Json spec = to_json(Spec{});
  for (const auto& [key, value] : spec.items()) mentions(key);
}

}  // namespace
}  // namespace kaon
