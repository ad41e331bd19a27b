// SmoothQuant and AWQ: both move factors between what products read and their weights.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/engine.h"
#include "quant/algorithm.h"
#include "quant/quantize.h"
#include "quant/schemes.h"
#include "quant/simulate.h"
#include "quant/transformer_test.h"

namespace kaon {
namespace {

Config with(const char* scheme, const char* algorithm) {
  Config config = scheme_config(scheme);
  if (algorithm != nullptr) config.algorithms = {{algorithm}};
  return config;
}

std::vector<float> outputs(const Model& model, const Dataset& data) {
  return Engine(model).run(data.read(0, data.size()).inputs)[0].to_float();
}

double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double squares = 0, energy = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    squares += std::pow(static_cast<double>(a[i]) - b[i], 2);
    energy += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(squares / energy);
}

double error_of(const Model& model, const Config& config) {
  const MemoryDataset data = transformer_data();
  const QuantizedModel quantized = quantize(model, config, &data);
  return relative_error(outputs(simulate(quantized), data), outputs(quantized.original, data));
}

TEST(ScaleAlgorithms, TheFloatFunctionStaysAsItIs) {
  const MemoryDataset data = transformer_data();
  for (const char* algorithm : {"smooth_quant", "awq"}) {
    for (const Model& model : {fused_block(60), exported_block(60)}) {
      const QuantizedModel quantized = quantize(model, with("w8a8", algorithm), &data);
      for (const std::string& note : quantized.algorithms.at(0).notes) {
        EXPECT_EQ(note.find("left alone"), std::string::npos) << note;
      }
      EXPECT_GE(quantized.algorithms.at(0).changed, 2);
      EXPECT_LT(relative_error(outputs(quantized.model, data), outputs(quantized.original, data)), 1e-6);
    }
  }
}

TEST(SmoothQuant, TakesBackWhatLargeChannelsCost) {
  for (const auto& block : {fused_block, exported_block}) {
    const double healthy = error_of(block(1), with("w8a8", nullptr));
    const double ill = error_of(block(60), with("w8a8", nullptr));
    const double cured = error_of(block(60), with("w8a8", "smooth_quant"));
    EXPECT_GT(ill, 5 * healthy);
    EXPECT_LT(cured - healthy, 0.1 * (ill - healthy));
  }
}

TEST(SmoothQuant, ValuesWithOtherUnitsAreKnown) {
  const MemoryDataset data = transformer_data();
  const QuantizedModel quantized = quantize(fused_block(60), with("w8a8", "smooth_quant"), &data);
  for (const auto& [value, factors] : quantized.rescaled) {
    std::vector<float> seen[2];
    for (int which = 0; which < 2; ++which) {
      Hooks hooks;
      hooks.add(value, [&](const std::string&, const Tensor& tensor) {
        seen[which] = tensor.to_float();
        return std::nullopt;
      });
      Engine(which == 0 ? quantized.original : quantized.model).run(data.read(0, 2).inputs, hooks);
    }
    ASSERT_EQ(factors.axis, -1);
    const size_t width = factors.factors.size();
    for (size_t i = 0; i < seen[0].size(); ++i) seen[0][i] *= factors.factors[i % width];
    EXPECT_LT(relative_error(seen[1], seen[0]), 1e-5) << value;
  }
  for (const char* value : {"n1", "n2"}) EXPECT_TRUE(quantized.rescaled.contains(value)) << value;
}

TEST(Awq, LosesLessThanRoundingAlone) {
  const double plain = error_of(fused_block(8), with("w4c", nullptr));
  const double clipped = error_of(fused_block(8), with("w4c", "range_search"));
  const double cured = error_of(fused_block(8), with("w4c", "awq"));
  EXPECT_LT(cured, 0.8 * plain);
  EXPECT_LT(cured, clipped);
}

TEST(ScaleAlgorithms, AConstantThatOthersReadIsCopied) {
  Model model = exported_block(60);
  // Another Mul reads the gain of the first norm too.
  model.graph.nodes.push_back(named("/more/Mul", make_node("Mul", {"x", "norm1.weight"}, {"z"})));
  model.graph.outputs.push_back(make_value("z"));
  const MemoryDataset data = transformer_data();
  const QuantizedModel quantized = quantize(model, with("w8a8", "smooth_quant"), &data);
  const auto before = Engine(quantized.original).run(data.read(0, 3).inputs);
  const auto after = Engine(quantized.model).run(data.read(0, 3).inputs);
  EXPECT_EQ(before[1].to_float(), after[1].to_float());
  EXPECT_LT(relative_error(after[0].to_float(), before[0].to_float()), 1e-6);
}

TEST(ScaleAlgorithms, WithoutAGroupTheySaySo) {
  const MemoryDataset data = residual_data();
  for (const char* algorithm : {"smooth_quant", "awq"}) {
    const QuantizedModel quantized = quantize(residual_network(), with("w8a8", algorithm), &data);
    EXPECT_NE(quantized.algorithms.at(0).notes.at(0).find("no product reads"), std::string::npos);
    EXPECT_EQ(outputs(quantized.model, data), outputs(quantized.original, data));
  }
}

}  // namespace
}  // namespace kaon
