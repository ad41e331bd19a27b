#include "quant/schemes.h"

#include <gtest/gtest.h>

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

TEST(Schemes, AnUnknownOneNamesTheNearest) {
  EXPECT_NE(error_of(ErrorCode::InvalidInput, [] { scheme_config("w8a88"); }).find("did you mean 'w8a8'"),
            std::string::npos);
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
