#include "quant/algorithm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>

#include "base/parallel.h"
#include "quant/quantize.h"
#include "quant/schemes.h"
#include "quant/transformer_test.h"

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
  // Both set biases.
  const AlgorithmConfig in_order{"gptq", {{"sequential", 1}}};
  EXPECT_EQ(refused({in_order, {"bias_correction"}}),
            "algorithms: gptq with sequential has set biases for its codes; bias_correction behind it must be "
            "sequential too, or go");
  refused({in_order, {"adaround"}});
  check_order({in_order, {"adaround", {{"sequential", 1}}}, {"bias_correction", {{"sequential", 1}}}});
  EXPECT_EQ(refused({{"gptq"}, {"cle"}, {"gptq"}}), "algorithms: gptq is named twice");
}

/// Every number that an algorithm can change, one after the other.
std::vector<float> numbers_of(const QuantizedModel& quantized) {
  std::vector<float> all;
  const auto append = [&](const std::vector<float>& more) { all.insert(all.end(), more.begin(), more.end()); };
  for (const Initializer& constant : quantized.model.graph.initializers) {
    if (constant.tensor.type() == DType::Float32) append(constant.tensor.to_float());
  }
  for (const auto& [name, tensor] : quantized.rounded) append(tensor.to_float());
  for (const Quantizer& quantizer : quantized.quantizers) append(quantizer.params.scale);
  return all;
}

TEST(Algorithms, GiveTheSameOnAnyNumberOfThreadsAndInAnyBatches) {
  const int threads = thread_count();
  const MemoryDataset images = residual_data(20), tokens = transformer_data();
  const MemoryDataset wide({20, 8, 6, 6}, random_values(20 * 8 * 36, 7));
  const std::pair<Model, const Dataset*> all[] = {{residual_network(), &images},
                                                  {norms_behind_relus(), &images},
                                                  {inverted_residual(true), &wide},
                                                  {exported_block(8), &tokens}};
  std::vector<AlgorithmConfig> algorithm_configs = {{"gptq", {{"sequential", 1}}}, {"adaround", {{"sequential", 1}}}};
  for (const std::string& name : algorithms().names()) {
    algorithm_configs.push_back({name});
    if (name == "range_search") algorithm_configs.back().options = {{"activations", 1}};
    if (name == "bias_correction") algorithm_configs.back().options = {{"sequential", 1}};
  }
  for (const AlgorithmConfig& algorithm : algorithm_configs) {
    SCOPED_TRACE(algorithm.name);
    int64_t changed = 0;
    for (const auto& [model, data] : all) {
      Config config = scheme_config("w8a8");
      config.global.weight.spec->format = "int4";
      config.algorithms = {algorithm};
      const auto run = [&](int count, int64_t batch) {
        set_thread_count(count);
        const QuantizedModel quantized = quantize(model, config, data, {.batch = batch});
        changed += quantized.algorithms.at(0).changed;
        return numbers_of(quantized);
      };
      const std::vector<float> one = run(1, 4);
      EXPECT_EQ(one, run(2, 4));
      const std::vector<float> others = run(2, 3);
      ASSERT_EQ(one.size(), others.size());
      for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], others[i], 1e-4F * (1e-3F + std::fabs(one[i])));
    }
    EXPECT_GT(changed, 0);
  }
  set_thread_count(threads);
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
