#include <gtest/gtest.h>

#include <cmath>

#include "engine/engine.h"
#include "quant/networks_test.h"
#include "quant/quantize.h"
#include "quant/schemes.h"
#include "quant/simulate.h"

namespace kaon {
namespace {

Config rough(bool cured) {
  Config config = scheme_config("w4c");
  config.global.weight.spec->format = "int3";
  if (cured) config.algorithms = {{"bn_reestimation"}};
  return config;
}

/// Mean and deviation of each channel.
std::vector<double> moments_of(const Model& model, const std::string& value, const Dataset& data) {
  std::vector<float> seen;
  Hooks hooks;
  hooks.add(value, [&](const std::string&, const Tensor& tensor) {
    seen = tensor.to_float();
    return std::nullopt;
  });
  Engine(model).run(data.read(0, data.size()).inputs, hooks);
  std::vector<double> sums(32);
  for (size_t i = 0; i < seen.size(); ++i) sums[i / 36 % 16] += seen[i];
  const double count = static_cast<double>(seen.size()) / 16;
  for (size_t c = 0; c < 16; ++c) sums[c] /= count;
  for (size_t i = 0; i < seen.size(); ++i) sums[16 + i / 36 % 16] += std::pow(seen[i] - sums[i / 36 % 16], 2) / count;
  for (size_t c = 16; c < 32; ++c) sums[c] = std::sqrt(sums[c]);
  return sums;
}

TEST(BnReestimation, NormsMakeWhatTheyMadeInTheFloatNetwork) {
  const MemoryDataset data = residual_data();
  const QuantizedModel quantized = quantize(norms_behind_relus(), rough(true), &data);
  EXPECT_EQ(quantized.algorithms.at(0).changed, 2);
  const QuantizedModel plain = quantize(norms_behind_relus(), rough(false), &data);
  for (const char* value : {"a3", "b3"}) {
    const std::vector<double> exact = moments_of(quantized.original, value, data);
    const std::vector<double> found = moments_of(simulate(quantized), value, data);
    const std::vector<double> without = moments_of(simulate(plain), value, data);
    double largest = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      EXPECT_NEAR(found[i], exact[i], 1e-4 * (1 + std::fabs(exact[i]))) << value << " " << i;
      largest = std::max(largest, std::fabs(without[i] - exact[i]));
    }
    EXPECT_GT(largest, 0.05);  // the test could fail
  }
  EXPECT_EQ(Engine(quantized.model).run(data.read(0, 2).inputs)[0].to_float(),
            Engine(quantized.original).run(data.read(0, 2).inputs)[0].to_float());
}

TEST(BnReestimation, WithoutANormItSaysSo) {
  const MemoryDataset data = residual_data();
  const QuantizedModel quantized = quantize(residual_network(), rough(true), &data);
  EXPECT_EQ(quantized.algorithms.at(0).changed, 0);
  EXPECT_NE(quantized.algorithms.at(0).notes.at(0).find("no batch norm"), std::string::npos);
  EXPECT_TRUE(quantized.rounded.empty());
}

}  // namespace
}  // namespace kaon
