// Models whose weights are float16 or bfloat16, or that compute in it.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/engine.h"
#include "graph/compute_in_float32.h"
#include "graph/stored.h"
#include "graph/verify.h"
#include "numerics/half.h"
#include "quant/networks_test.h"
#include "quant/quantize.h"
#include "quant/schemes.h"
#include "quant/simulate.h"
#include "quant/what_if.h"

namespace kaon {
namespace {

Tensor in_16_bits(const Tensor& tensor, DType type) {
  std::vector<uint16_t> bits;
  for (const float value : tensor.to_float()) {
    bits.push_back(type == DType::Float16 ? float32_to_float16(value) : float32_to_bfloat16(value));
  }
  return Tensor::copy_bytes(type, tensor.shape(), std::as_bytes(std::span(bits)));
}

/// The network with weights that 16 bits hold, as float32.
Model rounded_network(DType type) {
  Model model = residual_network();
  for (Initializer& one : model.graph.initializers) one.tensor = widened(in_16_bits(one.tensor, type));
  return model;
}

/// The same with its weights in 16 bits behind Casts.
Model stored_network(DType type) {
  Model model = rounded_network(type);
  std::vector<Node> casts;
  for (Initializer& one : model.graph.initializers) {
    if (one.tensor.rank() < 2) continue;
    casts.push_back(make_node("Cast", {one.name + "16"}, {one.name}, {{"to", int64_t{1}, {}}}));
    one = {one.name + "16", in_16_bits(one.tensor, type), {}, {}};
  }
  model.graph.nodes.insert(model.graph.nodes.begin(), casts.begin(), casts.end());
  return model;
}

/// The same in 16 bits from input to output.
Model half_network(DType type) {
  Model model = rounded_network(type);
  for (Initializer& one : model.graph.initializers) one.tensor = in_16_bits(one.tensor, type);
  model.graph.inputs[0].type = type;
  model.graph.outputs[0].type = type;
  return model;
}

std::vector<float> outputs_of(const Model& model, const Dataset& data) {
  return Engine(model).run(data.read(0, data.size()).inputs)[0].to_float();
}

class HalfTypes : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, HalfTypes, testing::Values(DType::Float16, DType::BFloat16));

TEST_P(HalfTypes, WeightsBehindCastsAreQuantizedAsIfTheyWereFloat32) {
  const MemoryDataset data = residual_data();
  for (const char* scheme : {"w8", "w8c", "w4g32", "w4c", "w8a8c", "w8a8d", "mxfp4", "fp8"}) {
    const Config config = scheme_config(scheme);
    const QuantizedModel plain = quantize(rounded_network(GetParam()), config, &data, {});
    const QuantizedModel stored = quantize(stored_network(GetParam()), config, &data, {});
    EXPECT_EQ(stored.quantizers.size(), plain.quantizers.size()) << scheme;
    EXPECT_EQ(find_stored(stored.model.graph, "conv1.weight")->tensor.type(), GetParam()) << scheme;
    EXPECT_EQ(outputs_of(simulate(stored), data), outputs_of(simulate(plain), data)) << scheme;
  }
}

/// Without the residual connection: what cle looks for.
Model chain(Model model) {
  for (Node& node : model.graph.nodes) {
    if (node.op == "Add") node.inputs[1] = node.inputs[0];
  }
  return model;
}

TEST_P(HalfTypes, AlgorithmsTakeThemToo) {
  const MemoryDataset data = residual_data();
  for (const char* name : {"cle", "range_search", "seq_mse", "bias_correction", "adaround", "gptq"}) {
    Config config = scheme_config("w4c");
    config.algorithms.push_back({name, {}});
    const QuantizedModel plain = quantize(chain(rounded_network(GetParam())), config, &data, {});
    const QuantizedModel stored = quantize(chain(stored_network(GetParam())), config, &data, {});
    EXPECT_GT(stored.algorithms[0].changed, 0) << name;
    EXPECT_EQ(stored.algorithms[0].changed, plain.algorithms[0].changed) << name;
    EXPECT_EQ(outputs_of(simulate(stored), data), outputs_of(simulate(plain), data)) << name;
  }
}

TEST_P(HalfTypes, QuantizersOfThemAreSwitchedOff) {
  const MemoryDataset data = residual_data();
  QuantizedModel quantized = quantize(stored_network(GetParam()), scheme_config("w4c"), &data, {});
  WhatIf what_if(quantized, data, {.batch = data.size()});
  Question question = what_if.as_it_is();
  question.on[0] = false;
  std::vector<float> answer;
  what_if.ask(what_if.as_it_is(), std::vector{question},
              [&](size_t, int64_t, const std::vector<Tensor>& outputs) { answer = outputs[0].to_float(); });
  quantized.quantizers[0].enabled = false;
  EXPECT_EQ(answer, outputs_of(simulate(quantized), data));
}

TEST_P(HalfTypes, AModelThatComputesInThemComputesInFloat32) {
  const Model half = half_network(GetParam());
  EXPECT_TRUE(computes_in_half(half));
  EXPECT_FALSE(computes_in_half(stored_network(GetParam())));
  Model model = half;
  compute_in_float32(model);
  verify(model);
  EXPECT_EQ(model.graph.inputs[0].type, GetParam());
  const Tensor x = in_16_bits(Tensor::of<float>({2, 16, 6, 6}, random_values(2 * 16 * 36, 7)), GetParam());
  const Tensor y = Engine(model).run({{"x", x}})[0];
  EXPECT_EQ(y.type(), GetParam());
  // Rounded once, at the end.
  const Tensor exact = Engine(rounded_network(GetParam())).run({{"x", widened(x)}})[0];
  EXPECT_EQ(y.to_float(), in_16_bits(exact, GetParam()).to_float());
  EXPECT_EQ(find_stored(model.graph, "conv1.weight")->tensor.type(), GetParam());
}

TEST_P(HalfTypes, AModelThatComputesInThemIsQuantized) {
  const QuantizedModel plain = quantize(rounded_network(GetParam()), scheme_config("w4c"), nullptr, {});
  const QuantizedModel half = quantize(half_network(GetParam()), scheme_config("w4c"), nullptr, {});
  ASSERT_EQ(half.quantizers.size(), plain.quantizers.size());
  for (size_t i = 0; i < half.quantizers.size(); ++i) {
    EXPECT_EQ(half.quantizers[i].params.scale, plain.quantizers[i].params.scale);
  }
}

TEST(ComputeInFloat32, TypesInAttributesSubgraphsAndTablesFollow) {
  const auto half = static_cast<int64_t>(DType::Float16);
  const Tensor ones = in_16_bits(Tensor::of<float>({1}, std::vector<float>{1}), DType::Float16);
  const auto branch = [&](const std::string& op) {
    Model inside = make_model({make_node(op, {"rows", "one"}, {"made"})}, {}, {}, {"made"});
    inside.graph.outputs[0].type = DType::Float16;
    return std::make_shared<Graph>(inside.graph);
  };
  Model model = make_model(
      {make_node("Gather", {"table", "ids"}, {"rows"}), make_node("Constant", {}, {"one"}, {{"value", ones, {}}}),
       make_node("If", {"which"}, {"chosen"}, {{"then_branch", branch("Add"), {}}, {"else_branch", branch("Sub"), {}}}),
       make_node("Cast", {"ids"}, {"numbers"}, {{"to", half, {}}}), make_node("Add", {"chosen", "numbers"}, {"y"})},
      {{"table", in_16_bits(Tensor::of<float>({3, 1}, std::vector<float>{10, 20, 30}), DType::Float16), {}, {}}},
      {make_value("ids", {1, 1}, DType::Int64), make_value("which", {}, DType::Bool)}, {"y"});
  model.graph.outputs[0].type = DType::Float16;
  compute_in_float32(model);
  verify(model);
  EXPECT_EQ(model.graph.initializers[0].tensor.type(), DType::Float16);
  for (const bool which : {true, false}) {
    const TensorMap inputs{{"ids", Tensor::of<int64_t>({1, 1}, std::vector<int64_t>{2})},
                           {"which", Tensor::copy_bytes(DType::Bool, {}, std::as_bytes(std::span(&which, 1)))}};
    const Tensor y = Engine(model).run(inputs)[0];
    EXPECT_EQ(y.type(), DType::Float16);
    EXPECT_EQ(y.to_float()[0], which ? 33.0F : 31.0F);
  }
}

}  // namespace
}  // namespace kaon
