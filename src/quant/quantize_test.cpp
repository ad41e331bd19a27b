#include "quant/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/engine.h"
#include "graph/verify.h"
#include "numerics/error_metrics.h"
#include "quant/describe.h"
#include "quant/networks_test.h"
#include "quant/schemes.h"
#include "quant/simulate.h"

namespace kaon {
namespace {

std::vector<float> run(const Model& model, const MemoryDataset& data) {
  Engine engine(model);
  return engine.run(data.read(0, data.size()).inputs).at(0).to_float();
}

double sqnr(const std::vector<float>& x, const std::vector<float>& reference) {
  ErrorMetrics metrics;
  metrics.update(x, reference);
  return metrics.sqnr_db();
}

/// What each scheme must reach on the residual network, in dB; mind 6 dB a bit.
TEST(Quantize, EverySchemeIsCloseToTheFloatModel) {
  const std::map<std::string, double> least = {
      {"w8", 35},    {"w8c", 38},   {"w4g32", 15}, {"w4g128", 15}, {"w4g32s", 14}, {"w4g128s", 14},
      {"w4c", 11},   {"w8a8", 28},  {"w8a8c", 28}, {"w8a8d", 28},  {"w8a8dc", 28}, {"a16w8", 38},
      {"fp8", 20},   {"fp8d", 20},  {"mxfp8", 20}, {"mxfp6", 20},  {"mxfp4", 8},   {"mxint8", 30},
      {"nvfp4", 10}, {"bfp16", 30}, {"fp16", 60},  {"bf16", 42}};
  const MemoryDataset data = residual_data();
  const std::vector<float> exact = run(residual_network(), data);
  for (const std::string& name : schemes().names()) {
    const QuantizedModel quantized = quantize(residual_network(), scheme_config(name), &data);
    const Model simulated = simulate(quantized);
    verify(simulated);
    const double db = sqnr(run(simulated, data), exact);
    ASSERT_TRUE(least.contains(name)) << name;
    EXPECT_GE(db, least.at(name)) << name;
    EXPECT_LE(db, 110) << name << " changed nothing";
  }
}

TEST(Quantize, ParametersAreThoseOfTheObservedRange) {
  const MemoryDataset data({2, 16, 6, 6}, [] {
    std::vector<float> values(2 * 16 * 36, 0.5F);
    values[7] = -1.0F;
    values[900] = 4.1F;
    return values;
  }());
  const QuantizedModel quantized = quantize(residual_network(), scheme_config("w8a8"), &data);
  const Quantizer& input = *quantized.find("conv1", Slot::Input);
  EXPECT_EQ(input.observed.min, -1.0F);
  EXPECT_EQ(input.observed.max, 4.1F);
  EXPECT_FLOAT_EQ(input.params.scale.at(0), 5.1F / 255);
  EXPECT_EQ(input.params.zero_point.at(0), 50);
  const Quantizer& bias = *quantized.find("conv1", Slot::Bias);
  const Quantizer& weight = *quantized.find("conv1", Slot::Weight);
  EXPECT_EQ(bias.params.scale.at(0), input.params.scale.at(0) * weight.params.scale.at(0));
  EXPECT_EQ(quantized.calibration.samples, 2);
}

TEST(Quantize, ABiasTooLargeForItsScaleRaisesTheWeightScale) {
  Model model = residual_network();
  std::vector<float> tiny(16 * 16 * 9, 1e-12F);
  model.graph.find_initializer("conv1.weight")->tensor = Tensor::of({16, 16, 3, 3}, tiny);
  const MemoryDataset data = residual_data();
  const QuantizedModel quantized = quantize(model, scheme_config("w8a8c"), &data);
  const Quantizer& bias = *quantized.find("conv1", Slot::Bias);
  const std::vector<float> exact = model.graph.find_initializer("conv1.bias")->tensor.to_float();
  std::vector<float> faked(exact.size());
  bias.apply(exact, faked, Shape{16});
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(faked[i], exact[i], std::fabs(exact[i]) * 1e-6F);
}

TEST(Quantize, BiasesOfLayersThatShareAWeightFollowItsLastScale) {
  const Model model = make_model({make_node("Gemm", {"x", "w", "small"}, {"a"}), make_node("Relu", {"a"}, {"b"}),
                                  make_node("Gemm", {"b", "w", "large"}, {"y"})},
                                 {make_counting("w", {4, 4}), make_constant("small", {4}, {0.1F, 0.2F, 0.3F, 0.4F}),
                                  make_constant("large", {4}, {1e12F, 0, 0, 0})},
                                 {make_value("x", {2, 4})}, {"y"});
  const MemoryDataset data({2, 4}, {1, 0.5F, -1, 2, 0.25F, 1, 1, 0});
  for (const char* scheme : {"w8a8", "w8a8c"}) {
    const QuantizedModel quantized = quantize(model, scheme_config(scheme), &data);
    ASSERT_EQ(quantized.find("a", Slot::Weight), quantized.find("y", Slot::Weight)) << scheme;
    const std::vector<float>& weight = quantized.find("a", Slot::Weight)->params.scale;
    for (const char* layer : {"a", "y"}) {
      const float input = quantized.find(layer, Slot::Input)->params.scale.at(0);
      for (size_t i = 0; i < weight.size(); ++i) {
        EXPECT_EQ(quantized.find(layer, Slot::Bias)->params.scale.at(i), weight[i] * input) << scheme << " " << layer;
      }
    }
  }
}

TEST(Quantize, CalibrationDoesNotDependOnTheBatchSize) {
  const MemoryDataset data = residual_data();
  for (const char* observer : {"min_max", "percentile", "entropy", "mse"}) {
    Config config = scheme_config("w8a8c");
    set_observer(config, {observer, {}});
    QuantizeSettings one;
    one.batch = 1;
    QuantizeSettings five;
    five.batch = 5;
    const QuantizedModel a = quantize(residual_network(), config, &data, one);
    const QuantizedModel b = quantize(residual_network(), config, &data, five);
    const Quantizer& x = *a.find("conv1", Slot::Input);
    const Quantizer& y = *b.find("conv1", Slot::Input);
    EXPECT_EQ(x.params.scale, y.params.scale) << observer;
    EXPECT_EQ(x.params.zero_point, y.params.zero_point) << observer;
  }
}

TEST(Quantize, ActivationsPerChannel) {
  Config config = scheme_config("w8a8");
  config.global.input.spec->granularity = Granularity::PerChannel;
  config.global.output = SlotRule::stays_float();
  config.global.bias = SlotRule::stays_float();
  const MemoryDataset data = residual_data();
  const QuantizedModel quantized = quantize(residual_network(), config, &data);
  EXPECT_EQ(quantized.find("conv1", Slot::Input)->params.scale.size(), 16U);
  EXPECT_GT(sqnr(run(simulate(quantized), data), run(residual_network(), data)), 25);
}

TEST(Quantize, SwitchedOffQuantizersLeaveNoTrace) {
  const MemoryDataset data = residual_data();
  QuantizedModel quantized = quantize(residual_network(), scheme_config("w8a8"), &data);
  for (Quantizer& quantizer : quantized.quantizers) quantizer.enabled = false;
  const Model simulated = simulate(quantized);
  EXPECT_EQ(simulated.graph.nodes.size(), quantized.model.graph.nodes.size());
  EXPECT_EQ(run(simulated, data), run(quantized.model, data));
}

TEST(Quantize, TheSimulatedValueIsOnTheGrid) {
  const MemoryDataset data = residual_data();
  const QuantizedModel quantized = quantize(residual_network(), scheme_config("w8a8"), &data);
  Engine engine(simulate(quantized));
  int64_t seen = 0;
  Hooks hooks;
  for (const Quantizer& quantizer : quantized.quantizers) {
    if (!quantizer.is_activation()) continue;
    std::vector<std::string> values = quantizer.moved;
    values.push_back(simulated_value(quantized, quantizer));
    for (const std::string& value : values) {
      hooks.add(value, [&](const std::string& name, const Tensor& tensor) -> std::optional<Tensor> {
        ++seen;
        for (const float number : tensor.to_float()) {
          const float steps = number / quantizer.params.scale[0];
          EXPECT_NEAR(steps, std::nearbyint(steps), 1e-3) << name;
        }
        return std::nullopt;
      });
    }
  }
  engine.run(data.read(0, 2).inputs, hooks);
  EXPECT_EQ(seen, 7);
}

TEST(Quantize, MissingAndBadDataAreErrors) {
  EXPECT_NE(error_of(ErrorCode::InvalidConfig, [] { quantize(residual_network(), scheme_config("w8a8")); })
                .find("conv1.input: static quantization learns this range from data"),
            std::string::npos);
  std::vector<float> values = random_values(2 * 16 * 36, 1);
  values[16 * 36 + 5] = NAN;
  const MemoryDataset broken({2, 16, 6, 6}, values);
  EXPECT_NE(error_of(ErrorCode::InvalidInput, [&] { quantize(residual_network(), scheme_config("w8a8"), &broken); })
                .find("x: sample 1 has a NaN or Inf at element [0, 0, 5]"),
            std::string::npos);
  const MemoryDataset empty({0, 16, 6, 6}, {});
  EXPECT_NE(error_of(ErrorCode::InvalidInput, [&] { quantize(residual_network(), scheme_config("w8a8"), &empty); })
                .find("empty"),
            std::string::npos);
}

TEST(Quantize, AWeightOrBiasThatIsNotFiniteIsAnError) {
  const MemoryDataset data = residual_data();
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    Model model = residual_network();
    std::vector<float> values = random_values(16 * 16 * 9, 1);
    values[2 * 16 * 9 + 3 * 9 + 4] = bad;
    model.graph.find_initializer("conv2.weight")->tensor = Tensor::of({16, 16, 3, 3}, values);
    for (const char* scheme : {"w8c", "w8a8", "w4g32", "fp16", "mxfp4"}) {
      const std::string message = error_of(ErrorCode::Numeric, [&] { quantize(model, scheme_config(scheme), &data); });
      EXPECT_NE(message.find("conv2.weight"), std::string::npos) << message;
      EXPECT_NE(message.find("at element [2, 3, 1, 1]"), std::string::npos) << message;
    }
  }
  Model model = residual_network();
  model.graph.find_initializer("fc.bias")->tensor = Tensor::of<float>({4}, std::vector<float>{0, 1, NAN, 2});
  const std::string message = error_of(ErrorCode::Numeric, [&] { quantize(model, scheme_config("w8a8"), &data); });
  EXPECT_NE(message.find("fc.bias: 'fc.bias' holds nan at element [2]"), std::string::npos) << message;
}

TEST(Quantize, ABiasScaleThatNoFloatHoldsNamesTheLayer) {
  std::vector<float> weight(8, 1);
  weight[1] = 3e38F;
  const Model model = make_model({make_node("Gemm", {"x", "fc.weight", "fc.bias"}, {"y"})},
                                 {make_constant("fc.weight", {4, 2}, weight), make_constant("fc.bias", {2}, {1, 1})},
                                 {make_value("x", {1, 4})}, {"y"});
  const MemoryDataset data({1, 4}, {0, 3e38F, 0, 0});
  const std::string message = error_of(ErrorCode::Numeric, [&] { quantize(model, scheme_config("w8a8"), &data); });
  EXPECT_TRUE(message.find("fc.bias: its scale") != std::string::npos) << message;
}

TEST(Quantize, AnActivationThatWasNeverFiniteIsAnError) {
  // log of a negative number: NaN wherever conv1 made one.
  const auto model = [](const char* op) {
    return make_model({make_node("Conv", {"x", "a.weight"}, {"h"}), make_node(op, {"h"}, {"n"}),
                       make_node("Conv", {"n", "b.weight"}, {"y"})},
                      {make_constant("a.weight", {16, 16, 1, 1}, std::vector<float>(256, -1.0F)),
                       random_constant("b.weight", {4, 16, 1, 1}, 2)},
                      {make_value("x", {0, 16, 6, 6})}, {"y"});
  };
  const MemoryDataset data({2, 16, 6, 6}, std::vector<float>(2 * 16 * 36, 0.5F));
  for (const char* observer : {"min_max", "percentile"}) {
    Config config = scheme_config("w8a8c");
    set_observer(config, {observer, {}});
    Model broken = model("Log"), fine = model("Exp");
    for (Model* one : {&broken, &fine}) one->graph.inputs[0].shape->front() = {std::nullopt, "N"};
    const std::string message = error_of(ErrorCode::Numeric, [&] { quantize(broken, config, &data); });
    EXPECT_NE(message.find("b.input: calibration brought nothing but NaN and Inf to 'n'"), std::string::npos)
        << message;
    EXPECT_NO_THROW(quantize(fine, config, &data));
  }
}

TEST(Quantize, AGroupSizeThatDoesNotDivideIsHandled) {
  Config config = scheme_config("w4g32");
  config.global.weight.spec->group_size = 10;
  const QuantizedModel quantized = quantize(residual_network(), config);
  EXPECT_EQ(quantized.find("fc", Slot::Weight)->params.scale.size(), 8U);  // 4 rows of 10 + 6
  const MemoryDataset data = residual_data();
  EXPECT_GT(sqnr(run(simulate(quantized), data), run(residual_network(), data)), 12);
}

TEST(Quantize, BiasCorrectionTakesTheMeanErrorOfALayerBack) {
  Model model = make_model(
      {make_node("Conv", {"x", "w", "b"}, {"y"}, {{"pads", std::vector<int64_t>{1, 1, 1, 1}, {}}})},
      {random_constant("w", {8, 16, 3, 3}, 1), random_constant("b", {8}, 2)}, {make_value("x", {0, 16, 6, 6})}, {"y"});
  model.graph.inputs[0].shape->front() = {std::nullopt, "N"};
  std::vector<float> values = random_values(20 * 16 * 36, 7);
  for (float& value : values) value = std::fabs(value);  // as behind a Relu: their mean is not zero
  const MemoryDataset data({20, 16, 6, 6}, values);
  Config config = scheme_config("w4c");
  const auto mean_errors = [&] {
    const QuantizedModel quantized = quantize(model, config, &data);
    const std::vector<float> exact = run(quantized.model, data), small = run(simulate(quantized), data);
    std::vector<double> means(8);
    for (size_t i = 0; i < exact.size(); ++i) means[i / 36 % 8] += small[i] - exact[i];
    for (double& mean : means) mean = std::fabs(mean / (20 * 36));
    return means;
  };
  const std::vector<double> before = mean_errors();
  config.algorithms = {{"gptq", {{"damping", 10}}}, {"bias_correction"}};
  const std::vector<double> behind_rounding = mean_errors();
  EXPECT_LT(*std::max_element(behind_rounding.begin(), behind_rounding.end()), 1e-5);
  config.algorithms = {{"bias_correction"}};
  const std::vector<double> after = mean_errors();
  EXPECT_GT(*std::max_element(before.begin(), before.end()), 0.05);
  EXPECT_LT(*std::max_element(after.begin(), after.end()), 1e-5);
  EXPECT_EQ(run(quantize(model, config, &data).model, data), run(model, data)) << "the float model stays the reference";
  EXPECT_NE(error_of(ErrorCode::InvalidConfig, [&] { quantize(model, config); }).find("data"), std::string::npos);
}

/// Behind two layers with a Relu between, only the sequential form takes the whole shift back.
TEST(Quantize, SequentialBiasCorrectionFollowsTheQuantizedNetwork) {
  const MemoryDataset data = residual_data(40);
  for (const char* scheme : {"w4c", "w8a8"}) {
    const auto shift = [&](std::map<std::string, double> options) {
      Config config = scheme_config(scheme);
      if (config.global.weight.spec) config.global.weight.spec->format = "int4";
      config.algorithms = {{"bias_correction", std::move(options)}};
      const QuantizedModel quantized = quantize(residual_network(), config, &data);
      const std::vector<float> exact = run(quantized.model, data), small = run(simulate(quantized), data);
      std::vector<double> means(4);
      for (size_t i = 0; i < exact.size(); ++i) means[i % 4] += static_cast<double>(small[i] - exact[i]) / 40;
      double worst = 0;
      for (const double mean : means) worst = std::max(worst, std::fabs(mean));
      return worst;
    };
    EXPECT_LT(shift({{"sequential", 1}}), 0.2 * shift({})) << scheme;
  }
}

TEST(Describe, NamesLayersQuantizersAndRanges) {
  const MemoryDataset data = residual_data();
  const std::string text = describe(quantize(residual_network(), scheme_config("w8a8"), &data));
  EXPECT_NE(
      text.find("conv1: QuantConv [16, 16, 3, 3]\n  (input) #0: FakeQuantize uint8, per_tensor, asymmetric, scale"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("(bias) #2: FakeQuantize int32"), std::string::npos) << text;
}

}  // namespace
}  // namespace kaon
