// gptq, adaround and range_search on layers of every kind.
#include "quant/weight_rounding.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/parallel.h"
#include "engine/engine.h"
#include "quant/networks_test.h"
#include "quant/quantize.h"
#include "quant/schemes.h"
#include "quant/simulate.h"

namespace kaon {
namespace {

struct Kind {
  std::string op;
  Shape weight;
  Shape input;
  std::vector<Attribute> attributes;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"Conv", {8, 16, 3, 3}, {24, 16, 6, 6}, {{"pads", std::vector<int64_t>{1, 1, 1, 1}, {}}}},
      {"Conv", {16, 8, 3, 3}, {24, 16, 6, 6}, {{"group", int64_t{2}, {}}}},
      {"Conv", {16, 1, 3, 3}, {24, 16, 6, 6}, {{"group", int64_t{16}, {}}}},
      {"Gemm", {12, 64}, {600, 64}, {{"transB", int64_t{1}, {}}}},
      {"MatMul", {64, 12}, {60, 10, 64}, {}},
  };
  return all;
}

Model model_of(const Kind& kind) {
  Model model = make_model({make_node(kind.op, {"x", "w"}, {"y"}, kind.attributes)},
                           {random_constant("w", kind.weight, 1)}, {make_value("x", kind.input)}, {"y"});
  model.graph.inputs[0].shape->front() = {std::nullopt, "N"};
  return model;
}

/// Neighbours are alike and the mean is not 0, as behind a Relu.
MemoryDataset data_of(const Kind& kind) {
  std::vector<float> values = random_values(element_count(kind.input), 2);
  for (size_t i = values.size(); i-- > 1;) values[i] = std::fabs(values[i] + values[i - 1]);
  return {kind.input, values};
}

Config config_of(const std::string& format, Granularity granularity, bool symmetric = true) {
  Spec spec;
  spec.format = format;
  spec.granularity = granularity;
  spec.group_size = 4;
  spec.symmetric = symmetric;
  Config config;
  config.global.weight = spec;
  return config;
}

double output_error(const Model& model, const QuantizedModel& quantized, const Dataset& data) {
  const TensorMap inputs = data.read(0, data.size()).inputs;
  const std::vector<float> exact = Engine(model).run(inputs).at(0).to_float();
  const std::vector<float> small = Engine(simulate(quantized)).run(inputs).at(0).to_float();
  double sum = 0;
  for (size_t i = 0; i < exact.size(); ++i) sum += std::pow(static_cast<double>(small[i] - exact[i]), 2);
  return sum;
}

void expect_on_grid(const QuantizedModel& quantized) {
  for (const auto& [name, tensor] : quantized.rounded) {
    std::vector<float> again(static_cast<size_t>(tensor.size()));
    quantized.find(quantized.layers.at(0).name, Slot::Weight)->apply(tensor.as<float>(), again, tensor.shape());
    EXPECT_EQ(again, tensor.to_float()) << name;
  }
}

/// The largest share of the error of nearest rounding that an algorithm may leave.
void expect_less_error(const std::string& algorithm, double share, const Config& config) {
  for (const Kind& kind : kinds()) {
    const Model model = model_of(kind);
    const MemoryDataset data = data_of(kind);
    Config with = config;
    with.algorithms = {{algorithm}};
    const QuantizedModel plain = quantize(model, config, &data);
    // A convolution with few inputs gets int8 instead of groups.
    if (plain.quantizers.at(0).spec.format != config.global.weight.spec->format) continue;
    const QuantizedModel cured = quantize(model, with, &data);
    const double left = output_error(model, cured, data) / output_error(model, plain, data);
    EXPECT_LT(left, share) << algorithm << " on " << kind.op << " " << to_string(kind.weight) << ", "
                           << describe(*config.global.weight.spec);
    EXPECT_EQ(cured.algorithms.at(0).changed, 1);
    EXPECT_TRUE(cured.algorithms[0].notes.empty()) << cured.algorithms[0].notes.front();
    EXPECT_EQ(Engine(cured.model).run(data.read(0, 1).inputs).at(0).to_float(),
              Engine(model).run(data.read(0, 1).inputs).at(0).to_float());
    expect_on_grid(cured);
  }
}

TEST(WeightRounding, GptqLosesLessThanTheNearest) {
  for (const Granularity granularity : {Granularity::PerTensor, Granularity::PerChannel, Granularity::PerGroup}) {
    expect_less_error("gptq", 0.8, config_of("int4", granularity));
    expect_less_error("gptq", 0.8, config_of("uint4", granularity, false));
  }
  expect_less_error("gptq", 0.8, config_of("int8", Granularity::PerTensor));
  expect_less_error("gptq", 0.95, config_of("int2", Granularity::PerChannel));
  expect_less_error("gptq", 0.8, config_of("fp8_e4m3", Granularity::PerTensor));
  expect_less_error("gptq", 0.8, config_of("fp4_e2m1", Granularity::PerChannel));
}

TEST(WeightRounding, AdaroundLosesLessThanGptq) {
  for (const Granularity granularity : {Granularity::PerTensor, Granularity::PerChannel, Granularity::PerGroup}) {
    expect_less_error("adaround", 0.7, config_of("int4", granularity));
    expect_less_error("adaround", 0.7, config_of("uint4", granularity, false));
  }
  expect_less_error("adaround", 0.7, config_of("int8", Granularity::PerTensor));
  expect_less_error("adaround", 0.9, config_of("int2", Granularity::PerChannel));
  expect_less_error("adaround", 0.7, config_of("fp8_e4m3", Granularity::PerTensor));
}

TEST(WeightRounding, RangesThatClip) {
  for (const Granularity granularity : {Granularity::PerTensor, Granularity::PerChannel, Granularity::PerGroup}) {
    expect_less_error("range_search", 0.95, config_of("int4", granularity));
    expect_less_error("range_search", 0.95, config_of("uint4", granularity, false));
    expect_less_error("range_search", 0.8, config_of("int2", granularity));
  }
}

/// On the first layer both see the same; behind it seq_mse sees what the quantized network makes.
TEST(WeightRounding, SeqMseSeesTheQuantizedNetwork) {
  const MemoryDataset data = residual_data(20);
  const auto scales = [&](const char* algorithm, const char* layer) {
    Config config = config_of("int2", Granularity::PerChannel);
    config.algorithms = {{algorithm}};
    return quantize(residual_network(), config, &data).find(layer, Slot::Weight)->params.scale;
  };
  EXPECT_EQ(scales("seq_mse", "conv1"), scales("range_search", "conv1"));
  EXPECT_NE(scales("seq_mse", "fc"), scales("range_search", "fc"));
  expect_less_error("seq_mse", 0.8, config_of("int2", Granularity::PerTensor));
  Config config = scheme_config("w8a8");
  config.global.weight.spec->format = "int4";
  config.algorithms = {{"seq_mse"}};
  EXPECT_GT(quantize(residual_network(), config, &data).algorithms.at(0).changed, 0) << "with quantized activations";
}

TEST(WeightRounding, RangesThenRounding) {
  const Kind& kind = kinds().front();
  const Model model = model_of(kind);
  const MemoryDataset data = data_of(kind);
  const auto left = [&](std::vector<AlgorithmConfig> algorithms) {
    Config config = config_of("int4", Granularity::PerTensor);
    config.algorithms = std::move(algorithms);
    const QuantizedModel quantized = quantize(model, config, &data);
    expect_on_grid(quantized);
    return output_error(model, quantized, data);
  };
  EXPECT_LT(left({{"range_search"}, {"adaround"}}), 0.8 * left({{"adaround"}}));
  EXPECT_LE(left({{"gptq"}, {"adaround"}}), left({{"gptq"}}));
}

TEST(WeightRounding, IsTheSameOnAnyNumberOfThreads) {
  const MemoryDataset data = residual_data(20);
  const int threads = thread_count();
  const std::vector<std::vector<AlgorithmConfig>> lists = {
      {{"gptq"}},
      {{"adaround"}},
      {{"range_search"}},
      {{"seq_mse"}},
      {{"gptq", {{"sequential", 1}}}},
      {{"cle"}, {"gptq"}, {"adaround"}, {"bias_correction", {{"sequential", 1}}}}};
  for (const std::vector<AlgorithmConfig>& list : lists) {
    const std::string& algorithm = list.back().name;
    std::vector<TensorMap> found;
    std::vector<std::vector<float>> scales;
    for (const int count : {1, 2}) {
      set_thread_count(count);
      Config config = scheme_config("w4c");
      config.algorithms = list;
      const QuantizedModel quantized = quantize(residual_network(), config, &data);
      found.push_back(quantized.rounded);
      scales.push_back(quantized.find("conv2", Slot::Weight)->params.scale);
    }
    EXPECT_EQ(scales[0], scales[1]) << algorithm;
    ASSERT_EQ(found[0].size(), found[1].size());
    for (const auto& [name, tensor] : found[0]) EXPECT_EQ(tensor.to_float(), found[1].at(name).to_float()) << name;
  }
  set_thread_count(threads);
}

double network_error(const Model& model, const Config& config, const Dataset& data) {
  return output_error(model, quantize(model, config, &data), data);
}

/// Each layer alone: its bias takes back the mean, so the codes need not.
TEST(WeightRounding, WhatBiasCorrectionTakesBackIsLeftToIt) {
  Model model = make_model({make_node("Gemm", {"x", "w", "b"}, {"y"}, {{"transB", int64_t{1}, {}}})},
                           {random_constant("w", {12, 16}, 1), random_constant("b", {12}, 2)},
                           {make_value("x", {600, 16})}, {"y"});
  std::vector<float> values = random_values(600 * 16, 3);
  for (float& value : values) value += 3;
  const MemoryDataset data({600, 16}, values);
  Config config = config_of("int2", Granularity::PerChannel);
  config.algorithms = {{"adaround"}};
  const double alone = network_error(model, config, data);
  config.algorithms.push_back({"bias_correction"});
  EXPECT_LT(network_error(model, config, data), 0.9 * alone);
  // Codes that leave the mean to the bias are others.
  config.algorithms = {{"adaround"}};
  const TensorMap without = quantize(model, config, &data).rounded;
  config.algorithms.push_back({"bias_correction"});
  EXPECT_NE(quantize(model, config, &data).rounded.at("w").to_float(), without.at("w").to_float());
}

/// What layers lose, those behind them take back as far as it shows in what they read.
TEST(WeightRounding, InOrderLosesLess) {
  const MemoryDataset data = residual_data(64);
  for (const char* algorithm : {"gptq", "adaround"}) {
    Config config = config_of("int2", Granularity::PerChannel);
    config.algorithms = {{algorithm}, {"bias_correction"}};
    const double plain = network_error(residual_network(), config, data);
    config.algorithms = {{algorithm, {{"sequential", 1}}}};
    const double in_order = network_error(residual_network(), config, data);
    EXPECT_LT(in_order, 0.6 * plain) << algorithm;
  }
}

TEST(WeightRounding, SaysWhatItLeavesAlone) {
  const MemoryDataset data = residual_data();
  for (const char* algorithm : {"gptq", "adaround", "range_search", "seq_mse"}) {
    Config config = scheme_config("mxfp8");
    config.algorithms = {{algorithm}};
    const QuantizedModel quantized = quantize(residual_network(), config, &data);
    const AlgorithmReport& report = quantized.algorithms.at(0);
    EXPECT_EQ(report.changed, 0);
    ASSERT_EQ(report.notes.size(), 1U) << algorithm;
    EXPECT_NE(report.notes[0].find("integer"), std::string::npos) << report.notes[0];
    EXPECT_TRUE(quantized.rounded.empty());
  }
}

/// Its products would not fit beside the others; the layer after it is rounded all the same.
TEST(WeightRounding, ALayerOfTooManyColumnsIsLeftAloneAndSaid) {
  const int64_t cols = kMostColumns + 1;
  Model model = make_model({make_node("Gemm", {"x", "w"}, {"a"}), make_node("Gemm", {"a", "v"}, {"y"})},
                           {random_constant("w", {cols, 3}, 1), random_constant("v", {3, 2}, 2)},
                           {make_value("x", {0, cols})}, {"y"});
  model.graph.inputs[0].shape->front() = {std::nullopt, "N"};
  const MemoryDataset data({4, cols}, random_values(4 * cols, 3));
  for (const char* algorithm : {"gptq", "adaround"}) {
    Config config = config_of("int4", Granularity::PerChannel);
    config.algorithms = {{algorithm}};
    const QuantizedModel quantized = quantize(model, config, &data);
    const AlgorithmReport& report = quantized.algorithms.at(0);
    EXPECT_EQ(report.changed, 1);
    ASSERT_EQ(report.notes.size(), 1U) << algorithm;
    EXPECT_EQ(report.notes[0], "left alone: a (it multiplies 4609 numbers at once, more than 4608)");
    EXPECT_FALSE(quantized.rounded.contains("w"));
    EXPECT_TRUE(quantized.rounded.contains("v"));
  }
}

/// The one line about a singular G.
std::string damping_note(const Kind& kind, const Dataset& data, const char* algorithm, OptionValues options) {
  Config config = config_of("int4", Granularity::PerChannel);
  config.algorithms = {{algorithm, std::move(options)}};
  const QuantizedModel quantized = quantize(model_of(kind), config, &data);
  expect_on_grid(quantized);
  const AlgorithmReport& report = quantized.algorithms.at(0);
  return report.notes.size() == 1 ? report.notes[0] : fmt::format("{} notes", report.notes.size());
}

TEST(WeightRounding, FewDataAreDampedAndSaid) {
  const std::string begin = "too few data to tell inputs apart, so what they say is damped: y (";
  const Kind gemm{"Gemm", {12, 64}, {5, 64}, {{"transB", int64_t{1}, {}}}};
  const Kind depthwise{"Conv", {3, 1, 3, 3}, {4, 3, 6, 6}, {{"group", int64_t{3}, {}}}};
  std::vector<float> one_dead = data_of(depthwise).read(0, 4).inputs.at("x").to_float();
  for (size_t i = 0; i < one_dead.size(); ++i) one_dead[i] *= i / 36 % 3 == 1 ? 0.0F : 1.0F;
  for (const char* algorithm : {"gptq", "adaround"}) {
    EXPECT_EQ(damping_note(gemm, data_of(gemm), algorithm, {}), begin + "5 columns of 64 numbers)");
    const std::string more = damping_note(gemm, data_of(gemm), algorithm, {{"damping", 0}});
    EXPECT_TRUE(more.starts_with(begin + "5 columns of 64 numbers, by a further ")) << more;
    const MemoryDataset zeros({600, 64}, std::vector<float>(600 * 64));
    EXPECT_EQ(damping_note(gemm, zeros, algorithm, {}), begin + "it reads nothing but zeros)");
    EXPECT_EQ(damping_note(depthwise, MemoryDataset(depthwise.input, one_dead), algorithm, {}),
              begin + "1 of 3 groups read nothing but zeros)");
    EXPECT_EQ(damping_note(kinds()[3], data_of(kinds()[3]), algorithm, {}), "0 notes");
  }
}

}  // namespace
}  // namespace kaon
