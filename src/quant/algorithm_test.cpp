#include "quant/algorithm.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "graph/build_test.h"

namespace kaon {
namespace {

std::string refused(const std::vector<AlgorithmConfig>& configs) {
  return error_of(ErrorCode::InvalidConfig, [&] { check_order(configs); });
}

TEST(Algorithms, WhatUndoesAnotherIsRefused) {
  check_order({{"cle"},
               {"awq"},
               {"smooth_quant"},
               {"seq_mse"},
               {"range_search"},
               {"gptq"},
               {"adaround"},
               {"bias_correction"},
               {"bn_reestimation"}});
  // Transforms come before calibration wherever they stand.
  check_order({{"gptq"}, {"cle"}});
  EXPECT_EQ(refused({{"gptq"}, {"range_search"}}),
            "algorithms: range_search decides ranges, which gptq before it builds on to decide codes: put range_search "
            "first");
  refused({{"gptq"}, {"awq"}});
  refused({{"adaround"}, {"gptq"}});
  refused({{"bias_correction"}, {"adaround"}});
  refused({{"bn_reestimation"}, {"bias_correction"}});
  EXPECT_EQ(refused({{"gptq"}, {"cle"}, {"gptq"}}), "algorithms: gptq is named twice");
}

TEST(Algorithms, ThePageHasASectionForEachWithItsOptions) {
  std::ifstream file(KAON_SOURCE_DIR "/docs/algorithms.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  for (const auto& [name, algorithm] : algorithms().items()) {
    const size_t begin = text.find("\n## " + name + "\n");
    ASSERT_NE(begin, std::string::npos) << name;
    const std::string section = text.substr(begin, text.find("\n## ", begin + 1) - begin);
    for (const Option& option : algorithm.options) {
      EXPECT_NE(section.find("`" + option.name + "`"), std::string::npos) << name << " " << option.name;
      if (option.flag) continue;
      // With its default.
      EXPECT_NE(section.find(fmt::format("{}", option.value)), std::string::npos) << name << " " << option.name;
    }
  }
}

}  // namespace
}  // namespace kaon
