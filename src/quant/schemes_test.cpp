#include "quant/schemes.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "graph/build_test.h"

namespace kaon {
namespace {

TEST(Schemes, StrategiesFollowFromTheRules) {
  const auto strategy = [](const char* name) { return strategy_of(schemes().get(name).rule); };
  EXPECT_EQ(strategy("w8"), Strategy::WeightOnly);
  EXPECT_EQ(strategy("fp16"), Strategy::WeightOnly);
  EXPECT_EQ(strategy("w8a8"), Strategy::Static);
  EXPECT_EQ(strategy("fp8"), Strategy::Static);
  EXPECT_EQ(strategy("w8a8d"), Strategy::Dynamic);
  EXPECT_EQ(strategy("mxfp4"), Strategy::Dynamic);
  EXPECT_TRUE(needs_calibration(scheme_config("a16w8")));
  EXPECT_FALSE(needs_calibration(scheme_config("fp8d")));
}

TEST(Schemes, RulesThatSaySomeKeysAreJudgedWithWhatTheyMeet) {
  const auto needs = [](const char* scheme, const char* config) {
    return needs_calibration(parse_config(nlohmann::ordered_json::parse(config), "c.json",
                                          scheme == nullptr ? Config{} : scheme_config(scheme)));
  };
  EXPECT_FALSE(needs("w8a8d", R"({"by_name": {"fc": {"input": {"format": "int8"}}}})"));
  EXPECT_TRUE(needs("w8a8d", R"({"by_name": {"fc": {"input": {"dynamic": false}}}})"));
  EXPECT_FALSE(needs("mxfp4", R"({"by_name": {"fc": {"input": {"dynamic": false}}}})"));
  EXPECT_TRUE(needs("mxfp4", R"({"by_type": {"Gemm": {"input": {"dynamic": false}}},
                                 "by_name": {"fc": {"input": {"format": "uint8"}}}})"));
  EXPECT_TRUE(needs("w8", R"({"by_name": {"fc": {"input": {"format": "uint8"}}}})"));
  EXPECT_FALSE(needs("w8", R"({"by_name": {"fc": {"weight": {"format": "uint8"}}}})"));
}

TEST(Schemes, LayoutAndObserverReachRulesThatSaySomeKeys) {
  const nlohmann::ordered_json rules = {
      {"by_name", {{"a", {{"input", {{"symmetric", true}}}}}, {"b", {{"input", {{"format", "int8"}}}}}}}};
  Config config = parse_config(rules, "c.json", scheme_config("w8a8c"));
  set_layout(config, Layout::U8U8);
  set_observer(config, {"mse", {}});
  EXPECT_EQ(config.by_name[0].second.input.keys, (std::set<std::string>{"symmetric", "observer"}));
  EXPECT_EQ(config.by_name[1].second.input.spec->format, "uint8");
  EXPECT_EQ(config.by_name[1].second.input.spec->observer.name, "mse");
}

TEST(Schemes, AnUnknownOneNamesTheNearest) {
  EXPECT_NE(error_of(ErrorCode::InvalidInput, [] { scheme_config("w8a88"); }).find("did you mean 'w8a8'"),
            std::string::npos);
}

TEST(Schemes, AFormatNamesTheSchemesThatUseIt) {
  EXPECT_EQ(error_of(ErrorCode::InvalidInput, [] { scheme_config("int8"); }),
            "int8: is a number format, not a scheme; schemes with such weights are w8, w8c, w8a8, w8a8c, w8a8d, "
            "w8a8dc, a16w8");
  EXPECT_EQ(error_of(ErrorCode::InvalidInput, [] { scheme_config("int3"); }),
            "int3: is a number format, not a scheme; no scheme has such weights");
}

TEST(Schemes, LayoutsChangeTheIntegerTypes) {
  Config config = scheme_config("w8a8c");
  set_layout(config, Layout::S8S8);
  EXPECT_EQ(config.global.input.spec->format, "int8");
  EXPECT_EQ(config.global.output.spec->format, "int8");
  EXPECT_FALSE(config.global.input.spec->symmetric);
  EXPECT_EQ(config.global.weight.spec->format, "int8");
  set_layout(config, Layout::U8U8);
  EXPECT_EQ(config.global.input.spec->format, "uint8");
  EXPECT_EQ(config.global.weight.spec->format, "uint8");
  Config weights_only = scheme_config("w8");
  EXPECT_NE(error_of(ErrorCode::InvalidConfig, [&] { set_layout(weights_only, Layout::S8S8); }).find("w8a8"),
            std::string::npos);
}

TEST(Schemes, TheObserverIsThatOfActivations) {
  Config config = scheme_config("w8a8c");
  set_observer(config, {"entropy", {}});
  EXPECT_EQ(config.global.input.spec->observer.name, "entropy");
  EXPECT_EQ(config.global.weight.spec->observer.name, "min_max");
}

}  // namespace
}  // namespace kaon
