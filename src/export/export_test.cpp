#include "export/export.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "engine/engine.h"
#include "graph/build_test.h"
#include "graph/dataset.h"
#include "quant/quantize.h"
#include "quant/schemes.h"
#include "quant/simulate.h"

namespace kaon {
namespace {

std::vector<float> random_values(const Shape& shape, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(element_count(shape)));
  for (float& value : values) value = normal(random);
  return values;
}

Tensor random_tensor(const Shape& shape, unsigned seed) { return Tensor::of(shape, random_values(shape, seed)); }

Initializer random_constant(const std::string& name, const Shape& shape) {
  return make_constant(name, shape, random_values(shape, static_cast<unsigned>(std::hash<std::string>{}(name))));
}

/// Samples of a model with one input.
class Samples : public Dataset {
 public:
  Samples(std::string input, Tensor values) : input_(std::move(input)), values_(std::move(values)) {}
  int64_t size() const override { return values_.shape()[0]; }
  bool has_labels() const override { return false; }
  Batch read(int64_t first, int64_t count) const override {
    Shape shape = values_.shape();
    const int64_t row = values_.size() / shape[0];
    shape[0] = count;
    return {{{input_, Tensor::of(shape, values_.as<float>().subspan(static_cast<size_t>(first * row),
                                                                    static_cast<size_t>(count * row)))}},
            {}};
  }

 private:
  std::string input_;
  Tensor values_;
};

struct Case {
  std::string name;
  Model model;
  Shape input;  ///< of "x", with the batch
};

ValueInfo open_input(const Shape& shape) {
  ValueInfo info = make_value("x", shape);
  (*info.shape)[0] = {std::nullopt, "batch"};
  return info;
}

Case gemm() {
  std::vector<Node> nodes{make_node("Gemm", {"x", "a.weight", "a.bias"}, {"h"}, {{"transB", int64_t{1}}}),
                          make_node("Relu", {"h"}, {"r"}), make_node("Gemm", {"r", "b.weight", "b.bias"}, {"y"})};
  std::vector<Initializer> constants{random_constant("a.weight", {24, 70}), random_constant("a.bias", {24}),
                                     random_constant("b.weight", {24, 5}), random_constant("b.bias", {5})};
  return {"gemm", make_model(nodes, constants, {open_input({8, 70})}, {"y"}, 11), {8, 70}};
}

Case gemm_scaled() {
  std::vector<Node> nodes{make_node("Transpose", {"x"}, {"t"}, {{"perm", std::vector<int64_t>{1, 0}}}),
                          make_node("Gemm", {"t", "a.weight", "a.bias"}, {"h"},
                                    {{"transA", int64_t{1}}, {"transB", int64_t{1}}, {"alpha", 0.5F}, {"beta", 2.0F}}),
                          make_node("Gemm", {"h", "b.weight"}, {"y"}, {{"alpha", 0.25F}})};
  std::vector<Initializer> constants{random_constant("a.weight", {20, 40}), random_constant("a.bias", {20}),
                                     random_constant("b.weight", {20, 3})};
  return {"gemm_scaled", make_model(nodes, constants, {open_input({6, 40})}, {"y"}), {6, 40}};
}

Case matmul() {
  std::vector<Node> nodes{make_node("MatMul", {"x", "a.weight"}, {"p"}), make_node("Add", {"p", "a.bias"}, {"h"}),
                          make_node("Sigmoid", {"h"}, {"s"}), make_node("MatMul", {"s", "b.weight"}, {"q"}),
                          make_node("Add", {"b.bias", "q"}, {"y"})};
  std::vector<Initializer> constants{random_constant("a.weight", {36, 17}), random_constant("a.bias", {17}),
                                     random_constant("b.weight", {17, 4}), random_constant("b.bias", {4})};
  return {"matmul", make_model(nodes, constants, {open_input({8, 3, 36})}, {"y"}, 13), {8, 3, 36}};
}

Case weight_first() {
  std::vector<Node> nodes{make_node("MatMul", {"a.weight", "x"}, {"y"})};
  return {"weight_first",
          make_model(nodes, {random_constant("a.weight", {5, 40})}, {open_input({8, 40, 3})}, {"y"}),
          {8, 40, 3}};
}

/// Residual, depthwise, Clip, pooling, a value that is an output and read on.
Case convolutions() {
  const std::vector<int64_t> pads{1, 1, 1, 1};
  std::vector<Node> nodes{
      make_node("Conv", {"x", "a.weight", "a.bias"}, {"a"}, {{"pads", pads}}),
      make_node("Relu", {"a"}, {"ar"}),
      make_node("Conv", {"ar", "b.weight", "b.bias"}, {"b"}, {{"pads", pads}, {"group", int64_t{20}}}),
      make_node("Clip", {"b", "zero", "six"}, {"bc"}),
      make_node("Conv", {"bc", "c.weight"}, {"c"}),
      make_node("Add", {"c", "ar"}, {"sum"}),
      make_node("Relu", {"sum"}, {"sr"}),
      make_node("MaxPool", {"sr"}, {"m"},
                {{"kernel_shape", std::vector<int64_t>{2, 2}}, {"strides", std::vector<int64_t>{2, 2}}}),
      make_node("Conv", {"m", "d.weight", "d.bias"}, {"d"}),
      make_node("GlobalAveragePool", {"d"}, {"g"}),
      make_node("Flatten", {"g"}, {"f"}),
      make_node("Gemm", {"f", "e.weight", "e.bias"}, {"y"}, {{"transB", int64_t{1}}})};
  std::vector<Initializer> constants{random_constant("a.weight", {20, 3, 3, 3}),
                                     random_constant("a.bias", {20}),
                                     random_constant("b.weight", {20, 1, 3, 3}),
                                     random_constant("b.bias", {20}),
                                     random_constant("c.weight", {20, 20, 1, 1}),
                                     random_constant("d.weight", {33, 20, 1, 1}),
                                     random_constant("d.bias", {33}),
                                     random_constant("e.weight", {7, 33}),
                                     random_constant("e.bias", {7}),
                                     make_constant("zero", {}, {0}),
                                     make_constant("six", {}, {6})};
  return {"convolutions", make_model(nodes, constants, {open_input({4, 3, 8, 8})}, {"y", "sr"}, 12), {4, 3, 8, 8}};
}

/// Two layers read one value; one of them transposes.
Case shared_input() {
  std::vector<Node> nodes{make_node("Conv", {"x", "a.weight"}, {"a"}),
                          make_node("ConvTranspose", {"x", "b.weight", "b.bias"}, {"b"}),
                          make_node("Conv", {"a", "c.weight"}, {"c"}), make_node("Add", {"b", "c"}, {"y"})};
  std::vector<Initializer> constants{random_constant("a.weight", {16, 18, 1, 1}),
                                     random_constant("b.weight", {18, 4, 1, 1}), random_constant("b.bias", {4}),
                                     random_constant("c.weight", {4, 16, 1, 1})};
  return {"shared_input", make_model(nodes, constants, {open_input({4, 18, 5, 5})}, {"y", "a"}), {4, 18, 5, 5}};
}

Case convolution_1d() {
  std::vector<Node> nodes{make_node("Conv", {"x", "a.weight", "a.bias"}, {"y"}, {{"group", int64_t{2}}})};
  std::vector<Initializer> constants{random_constant("a.weight", {6, 18, 3}), random_constant("a.bias", {6})};
  return {"convolution_1d", make_model(nodes, constants, {open_input({4, 36, 9})}, {"y"}), {4, 36, 9}};
}

/// x [batch, steps, inputs] -> LSTM in both directions -> GRU -> RNN -> Gemm of the last state.
Case recurrent() {
  std::vector<Node> nodes{
      make_node("LSTM", {"x", "a.w", "a.r", "a.b"}, {"a"},
                {{"hidden_size", int64_t{20}}, {"direction", std::string("bidirectional")}, {"layout", int64_t{0}}}),
      make_node("ReduceMean", {"a"}, {"am"}, {{"axes", std::vector<int64_t>{1}}, {"keepdims", int64_t{0}}}),
      make_node("GRU", {"am", "b.w", "b.r"}, {"b"},
                {{"hidden_size", int64_t{24}}, {"linear_before_reset", int64_t{1}}}),
      make_node("Squeeze", {"b", "one"}, {"bs"}),
      make_node("RNN", {"bs", "c.w", "c.r"}, {"", "c"}, {{"hidden_size", int64_t{16}}}),
      make_node("Squeeze", {"c", "zero"}, {"cs"}),
      make_node("Gemm", {"cs", "d.weight"}, {"y"})};
  std::vector<Initializer> constants{random_constant("a.w", {2, 80, 40}),
                                     random_constant("a.r", {2, 80, 20}),
                                     random_constant("a.b", {2, 160}),
                                     random_constant("b.w", {1, 72, 20}),
                                     random_constant("b.r", {1, 72, 24}),
                                     random_constant("c.w", {1, 16, 24}),
                                     random_constant("c.r", {1, 16, 16}),
                                     random_constant("d.weight", {16, 5}),
                                     {"one", Tensor::of<int64_t>({1}, std::vector<int64_t>{1}), {}, {}},
                                     {"zero", Tensor::of<int64_t>({1}, std::vector<int64_t>{0}), {}, {}}};
  // Weights as they are after training: gates that are not saturated.
  for (Initializer& one : constants) {
    if (one.tensor.type() != DType::Float32) continue;
    std::vector<float> values = one.tensor.to_float();
    for (float& value : values) value *= 0.2F;
    one.tensor = Tensor::of(one.tensor.shape(), values);
  }
  return {"recurrent", make_model(nodes, constants, {open_input({8, 3, 40})}, {"y"}, 14), {8, 3, 40}};
}

/// A table looked up by two nodes, and one that a product reads as well.
Case embeddings() {
  std::vector<Node> nodes{make_node("Cast", {"x"}, {"ids"}, {{"to", int64_t{7}}}),
                          make_node("Abs", {"ids"}, {"positive"}),
                          make_node("Gather", {"words", "positive"}, {"a"}),
                          make_node("Min", {"positive", "fixed"}, {"few"}),
                          make_node("Gather", {"words", "few"}, {"b"}),
                          make_node("Gather", {"tied", "positive"}, {"c"}),
                          make_node("Add", {"a", "b"}, {"ab"}),
                          make_node("Add", {"ab", "c"}, {"sum"}),
                          make_node("MatMul", {"sum", "tied"}, {"y"})};
  return {"embeddings",
          make_model(nodes,
                     {random_constant("words", {30, 24}),
                      random_constant("tied", {24, 24}),
                      {"fixed", Tensor::scalar<int64_t>(3), {}, {}}},
                     {open_input({8, 5})}, {"y", "a"}),
          {8, 5}};
}

/// Both branches have their own copy of one weight, and one of their own; a loop reads the weight too.
Case branches() {
  const auto inside = [](std::vector<Node> nodes, std::vector<Initializer> constants, const std::string& output) {
    return std::make_shared<Graph>(make_model(std::move(nodes), std::move(constants), {}, {output}).graph);
  };
  const Initializer same = random_constant("in.weight", {40, 24});
  std::vector<Node> nodes{
      make_node("ReduceMean", {"x"}, {"mean"}, {{"keepdims", int64_t{0}}}),
      make_node("Greater", {"mean", "limit"}, {"more"}),
      make_node("If", {"more"}, {"h"},
                {{"then_branch", inside({make_node("MatMul", {"x", "in.weight"}, {"t"}),
                                         make_node("Gemm", {"t", "then.weight"}, {"u"}, {{"transB", int64_t{1}}})},
                                        {same, random_constant("then.weight", {36, 24})}, "u")},
                 {"else_branch", inside({make_node("MatMul", {"x", "in.weight"}, {"t"}),
                                         make_node("MatMul", {"t", "else.weight"}, {"v"})},
                                        {same, random_constant("else.weight", {24, 36})}, "v")}}),
      make_node("MatMul", {"h", "out.weight"}, {"y"})};
  return {"branches",
          make_model(nodes, {random_constant("out.weight", {36, 4}), make_constant("limit", {}, {0})},
                     {open_input({8, 40})}, {"y"}),
          {8, 40}};
}

std::vector<Case> cases() {
  return {gemm(),         gemm_scaled(),    matmul(),    weight_first(), convolutions(),
          shared_input(), convolution_1d(), recurrent(), embeddings(),   branches()};
}

QuantizedModel quantized(const Case& one, const Config& config) {
  const Samples samples("x", random_tensor(one.input, 1));
  return quantize(one.model, config, &samples);
}

double worst_gap(const std::vector<Tensor>& expected, const std::vector<Tensor>& got) {
  double worst = 0;
  EXPECT_EQ(expected.size(), got.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(expected[i].shape(), got[i].shape());
    const std::vector<float> a = expected[i].to_float(), b = got[i].to_float();
    double largest = 0, gap = 0;
    for (size_t j = 0; j < a.size(); ++j) {
      largest = std::max(largest, static_cast<double>(std::abs(a[j])));
      gap = std::max(gap, static_cast<double>(std::abs(a[j] - b[j])));
    }
    EXPECT_GT(largest, 0);
    worst = std::max(worst, gap / largest);
  }
  return worst;
}

/// The largest difference between the simulation and the exported model, relative to the largest output.
double difference(const QuantizedModel& model, const Shape& input, const Exported& exported) {
  const TensorMap inputs{{"x", random_tensor(input, 2)}};
  const std::vector<Tensor> expected = Engine(simulate(model)).run(inputs);
  return worst_gap(expected, Engine(exported.model).run(inputs));
}

std::map<std::string, int> count_ops(const Graph& graph) {
  std::map<std::string, int> count;
  for (const Node& node : graph.nodes) ++count[node.op];
  return count;
}

const Node& node_of(const Graph& graph, const std::string& op) {
  const auto found = std::ranges::find_if(graph.nodes, [&](const Node& node) { return node.op == op; });
  if (found == graph.nodes.end()) throw std::runtime_error("no " + op);
  return *found;
}

TEST(Export, EqualsTheSimulation) {
  for (const char* scheme : {"w8", "w8c", "w4g32", "w4g128", "w4g32s", "w4c", "w8a8", "w8a8c", "w8a8d", "w8a8dc",
                             "a16w8", "fp8", "fp8d", "fp16", "bf16"}) {
    for (const Case& one : cases()) {
      SCOPED_TRACE(std::string(scheme) + " " + one.name);
      const QuantizedModel model = quantized(one, scheme_config(scheme));
      EXPECT_LE(difference(model, one.input, export_onnx(model)), 1e-6);
    }
  }
}

TEST(Export, EqualsTheSimulationForSpecsOutsideTheSchemes) {
  const auto rule = [](const std::string& format, Granularity granularity, bool symmetric, bool dynamic,
                       const std::string& weight = "int8") {
    Config config;
    Spec activation;
    activation.format = format;
    activation.granularity = granularity;
    activation.symmetric = symmetric;
    activation.dynamic = dynamic;
    Spec of_weight;
    of_weight.format = weight;
    of_weight.granularity = Granularity::PerChannel;
    config.global.input = activation;
    config.global.output = activation;
    config.global.weight = of_weight;
    return config;
  };
  using enum Granularity;
  const std::vector<std::pair<std::string, Config>> configs{
      {"dynamic outputs", rule("uint8", PerTensor, false, true)},
      {"dynamic outputs, 3-bit weights", rule("uint8", PerTensor, false, true, "int3")},
      {"dynamic unsigned weights", rule("uint8", PerTensor, false, true, "uint8")},
      {"dynamic int8 rows", rule("int8", PerToken, true, true)},
      {"dynamic symmetric uint8 rows", rule("uint8", PerToken, true, true)},
      {"dynamic asymmetric int4", rule("int4", PerTensor, false, true)},
      {"dynamic fp8 per tensor", rule("fp8_e5m2", PerTensor, true, true)},
      {"static int8", rule("int8", PerTensor, false, false)},
      {"static int16", rule("int16", PerTensor, true, false)},
      {"static uint4, 2-bit weights", rule("uint4", PerTensor, false, false, "int2")},
      {"static per channel", rule("uint8", PerChannel, false, false)},
      {"float16", rule("float16", PerTensor, true, false)},
  };
  for (const auto& [name, config] : configs) {
    for (const Case& one : {gemm(), matmul(), convolutions(), shared_input()}) {
      SCOPED_TRACE(name + " " + one.name);
      const QuantizedModel model = quantized(one, config);
      EXPECT_LE(difference(model, one.input, export_onnx(model)), 1e-6);
    }
  }
}

bool is_float_weight(const Initializer& one) {
  return one.tensor.type() == DType::Float32 && one.tensor.size() > 128 && one.name != "a.b";  // a bias
}

TEST(Export, WhatIsAddedHasAShortName) {
  for (const char* scheme : {"w8c", "w8a8c", "w8a8dc", "fp8"}) {
    for (const Case& one : {convolutions(), embeddings(), branches()}) {
      const QuantizedModel model = quantized(one, scheme_config(scheme));
      std::set<std::string> known;
      const std::function<void(const Graph&)> learn = [&](const Graph& graph) {
        for (const Node& node : graph.nodes) {
          known.insert(node.outputs.begin(), node.outputs.end());
          for (const auto& inside : subgraphs(node)) learn(*inside);
        }
        for (const Initializer& initializer : graph.initializers) known.insert(initializer.name);
      };
      learn(model.model.graph);
      const Exported exported = export_onnx(model);
      for (const Node& node : exported.model.graph.nodes) {
        if (node.op == "QuantizeLinear" || node.op == "DequantizeLinear") {
          EXPECT_EQ(node.name, "") << scheme;
        }
        for (const std::string& output : node.outputs) {
          const bool is_short = output.size() <= 5 || output.ends_with("_dequantized");
          EXPECT_TRUE(known.contains(output) || is_short) << scheme << " " << output;
        }
      }
      for (const Initializer& initializer : exported.model.graph.initializers) {
        EXPECT_TRUE(known.contains(initializer.name) || initializer.name.size() <= 5) << initializer.name;
      }
    }
  }
}

TEST(Export, NoWeightOfARecurrentNodeATableOrABranchStaysFloat) {
  for (const Case& one : {recurrent(), embeddings(), branches()}) {
    for (const char* scheme : {"w8", "w8c", "w8a8d", "fp16"}) {
      SCOPED_TRACE(std::string(scheme) + " " + one.name);
      const QuantizedModel model = quantized(one, scheme_config(scheme));
      const Exported exported = export_onnx(model);
      EXPECT_TRUE(std::ranges::none_of(exported.model.graph.initializers, is_float_weight));
      const double off = worst_gap(Engine(one.model).run({{"x", random_tensor(one.input, 2)}}),
                                   Engine(exported.model).run({{"x", random_tensor(one.input, 2)}}));
      EXPECT_LT(off, 0.1);
      EXPECT_GT(off, 0) << "nothing was quantized";
    }
  }
}

TEST(Export, RowsAreLookedUpAsCodes) {
  const auto tables = [](const char* scheme) {
    const Exported exported = export_onnx(quantized(embeddings(), scheme_config(scheme)));
    const Graph& graph = exported.model.graph;
    int codes = 0;
    for (const Node& node : graph.nodes) {
      if (node.op != "Gather") continue;
      const Initializer* table = graph.find_initializer(node.inputs[0]);
      if (table != nullptr && table->tensor.shape() == Shape{30, 24}) codes += table->tensor.type() != DType::Float32;
    }
    return codes;
  };
  for (const char* scheme : {"w8", "w8c", "w4g32", "fp16", "w8a8d"}) EXPECT_EQ(tables(scheme), 2) << scheme;
}

TEST(Export, AWeightThatBranchesShareIsStoredOnceAndMadeNumbersInside) {
  const Exported exported = export_onnx(quantized(branches(), scheme_config("w8c")));
  const Graph& graph = exported.model.graph;
  int shared = 0;
  for (const Initializer& one : graph.initializers) shared += one.tensor.shape() == Shape{40, 24};
  EXPECT_EQ(shared, 1);
  for (const std::shared_ptr<Graph>& inside : subgraphs(node_of(graph, "If"))) {
    EXPECT_EQ(count_ops(*inside)["DequantizeLinear"], 2);
    EXPECT_TRUE(inside->initializers.empty());
  }
}

TEST(Export, ActivationsThatStayFloatAreSaid) {
  const auto said = [](const Case& one, const char* scheme) {
    const QuantizedModel model = quantized(one, scheme_config(scheme));
    return std::ranges::count_if(model.skipped, [](const Skipped& skipped) {
      return skipped.reason.starts_with("input and output stay float: ");
    });
  };
  EXPECT_EQ(said(branches(), "w8c"), 0);
  EXPECT_EQ(said(branches(), "w8a8c"), 4);
  EXPECT_EQ(said(recurrent(), "w8"), 0);
  EXPECT_EQ(said(recurrent(), "w8a8d"), 6);
}

TEST(Export, SaturatingProductsAreSaidWhereThereAreSome) {
  const auto said = [](Layout layout) {
    Config config = scheme_config("w8a8c");
    set_layout(config, layout);
    const Exported exported = export_onnx(quantized(gemm(), config));
    return std::ranges::any_of(exported.notes,
                               [](const std::string& note) { return note.find("saturates") != std::string::npos; });
  };
  EXPECT_TRUE(said(Layout::U8S8));
  EXPECT_FALSE(said(Layout::U8U8));
}

TEST(Export, TakesTheLowestOpsetThatHasTheTypes) {
  const std::vector<std::pair<const char*, int64_t>> expected{{"w8", 11},    {"w8c", 13},   {"w8a8", 11}, {"w8a8c", 13},
                                                              {"w8a8d", 11}, {"fp8", 19},   {"fp8d", 19}, {"w4g32", 21},
                                                              {"w4c", 21},   {"a16w8", 21}, {"fp16", 11}, {"bf16", 13}};
  for (const auto& [scheme, opset] : expected) {
    const Exported exported = export_onnx(quantized(gemm(), scheme_config(scheme)));
    EXPECT_EQ(exported.model.opset(), opset) << scheme;
  }
  EXPECT_EQ(export_onnx(quantized(gemm_scaled(), scheme_config("w8"))).model.opset(), 17) << "the model's own";
  const Exported exported = export_onnx(quantized(gemm(), scheme_config("fp8")));
  EXPECT_EQ(exported.model.ir_version, 9);
  EXPECT_EQ(exported.model.producer_name, "kaon");
  EXPECT_EQ(exported.model.metadata.back(), (std::pair<std::string, std::string>{"kaon.scheme", "fp8"}));
}

TEST(Export, InitializersAreNoInputs) {
  for (const int64_t ir_version : {3, 8}) {
    Case one = gemm();
    one.model.ir_version = ir_version;
    for (const Initializer& initializer : one.model.graph.initializers) {
      one.model.graph.inputs.push_back(make_value(initializer.name, initializer.tensor.shape()));
    }
    one.model.opsets[""] = 9;
    for (const char* scheme : {"fp16", "w8a8c"}) {
      const Exported exported = export_onnx(quantized(one, scheme_config(scheme)));
      EXPECT_GE(exported.model.ir_version, 4) << scheme;
      ASSERT_EQ(exported.model.graph.inputs.size(), 1) << scheme;
      EXPECT_EQ(exported.model.graph.inputs[0].name, "x") << scheme;
      EXPECT_NE(std::ranges::find(exported.notes, "4 inputs with a default value are constants in the file"),
                exported.notes.end())
          << scheme;
    }
  }
}

TEST(Export, StoresWeightsInTheirOwnTypeAndDropsTheFloats) {
  const std::vector<std::pair<const char*, DType>> expected{
      {"w8", DType::Int8},          {"w4g32", DType::UInt4},  {"w4g32s", DType::Int4},  {"w4c", DType::Int4},
      {"fp8", DType::Float8E4M3FN}, {"fp16", DType::Float16}, {"bf16", DType::BFloat16}};
  for (const auto& [scheme, type] : expected) {
    const Exported exported = export_onnx(quantized(gemm(), scheme_config(scheme)));
    int64_t of_type = 0;
    for (const Initializer& one : exported.model.graph.initializers) {
      if (one.tensor.type() == type && one.tensor.rank() == 2 && one.tensor.size() >= 24 * 5) ++of_type;
      EXPECT_FALSE(one.name == "a.weight" || one.name == "b.weight") << scheme;
    }
    EXPECT_EQ(of_type, 2) << scheme;
  }
}

TEST(Export, KeepsAFloatWeightThatOthersRead) {
  Case one = gemm();
  one.model.graph.nodes.push_back(make_node("ReduceMax", {"a.weight"}, {"z"}));
  one.model.graph.outputs.push_back(make_value("z"));
  QuantizedModel model = quantized(gemm(), scheme_config("w8"));
  model.model = one.model;
  const Exported exported = export_onnx(model);
  EXPECT_NE(exported.model.graph.find_initializer("a.weight"), nullptr);
  EXPECT_EQ(exported.model.graph.find_initializer("b.weight"), nullptr);
  EXPECT_LE(difference(model, one.input, exported), 1e-6);
}

TEST(Export, GroupsOfAGemmLieAlongTheFirstAxis) {
  const Exported exported = export_onnx(quantized(gemm(), scheme_config("w4g32")));
  const Graph& graph = exported.model.graph;
  const Node& node = node_of(graph, "DequantizeLinear");
  EXPECT_EQ(node.get_int("axis", -1), 0);
  EXPECT_EQ(node.get_int("block_size", 0), 32);
  EXPECT_EQ(graph.find_initializer(node.inputs[0])->tensor.shape(), (Shape{70, 24}));
  EXPECT_EQ(graph.find_initializer(node.inputs[1])->tensor.shape(), (Shape{3, 24}));
  EXPECT_EQ(node_of(graph, "Gemm").get_int("transB", 0), 0);
}

TEST(Export, OneQuantizerForAValueAndSharedConstants) {
  const QuantizedModel model = quantized(shared_input(), scheme_config("w8a8c"));
  const Exported exported = export_onnx(model);
  const Graph& graph = exported.model.graph;
  int reading_x = 0;
  for (const Node& node : graph.nodes) reading_x += node.op == "QuantizeLinear" && node.inputs[0] == "x";
  EXPECT_EQ(reading_x, 1);
  EXPECT_EQ(graph.outputs[1].name, "a");
  std::set<std::pair<std::string, std::string>> parameters;
  for (const Node& node : graph.nodes) {
    if (node.op != "QuantizeLinear") continue;
    ASSERT_EQ(node.inputs.size(), 3) << "a zero point is always given";
    parameters.emplace(node.inputs[1], node.inputs[2]);
  }
  EXPECT_LE(parameters.size(), static_cast<size_t>(count_ops(graph)["QuantizeLinear"]));
}

TEST(Export, MovedValuesCarryTheSameParameters) {
  const Exported exported = export_onnx(quantized(convolutions(), scheme_config("w8a8c")));
  const Graph& graph = exported.model.graph;
  const Uses uses(graph);
  const Node& pool = node_of(graph, "MaxPool");
  const Node& before = graph.nodes[static_cast<size_t>(uses.producer(pool.inputs[0]))];
  const Node& after = graph.nodes[static_cast<size_t>(uses.consumers(pool.outputs[0])[0])];
  ASSERT_EQ(before.op, "DequantizeLinear");
  ASSERT_EQ(after.op, "QuantizeLinear");
  EXPECT_EQ(before.inputs[1], after.inputs[1]);
  EXPECT_EQ(before.inputs[2], after.inputs[2]);
}

TEST(Export, DropsClipsThatTheQuantizerMakesSuperfluous) {
  QuantizedModel model = quantized(convolutions(), scheme_config("w8a8c"));
  std::map<std::string, int> ops = count_ops(export_onnx(model).model.graph);
  EXPECT_EQ(ops["Relu"], 0);
  EXPECT_EQ(ops["Clip"], 0);
  // With a zero point above the lowest code, or a range beyond the bound, they are needed.
  for (Quantizer& quantizer : model.quantizers) {
    if (quantizer.tensor == "ar") quantizer.params.zero_point = {3};
    if (quantizer.tensor == "bc") quantizer.params.scale = {6.1F / 255};
  }
  const Exported exported = export_onnx(model);
  ops = count_ops(exported.model.graph);
  EXPECT_EQ(ops["Relu"], 1);
  EXPECT_EQ(ops["Clip"], 1);
  EXPECT_LE(difference(model, {4, 3, 8, 8}, exported), 1e-6);
}

TEST(Export, BiasHasInt32CodesAndNoZeroPoint) {
  const Exported exported = export_onnx(quantized(gemm(), scheme_config("w8a8c")));
  int biases = 0;
  for (const Node& node : exported.model.graph.nodes) {
    if (node.op != "DequantizeLinear") continue;
    const Initializer* codes = exported.model.graph.find_initializer(node.inputs[0]);
    if (codes == nullptr || codes->tensor.type() != DType::Int32) continue;
    ++biases;
    EXPECT_EQ(node.inputs.size(), 2);
    EXPECT_EQ(node.get_int("axis", -1), 0);
  }
  EXPECT_EQ(biases, 2);
}

TEST(Export, DynamicProductsAreInteger) {
  std::map<std::string, int> ops =
      count_ops(export_onnx(quantized(convolutions(), scheme_config("w8a8d"))).model.graph);
  EXPECT_EQ(ops["ConvInteger"], 4);
  EXPECT_EQ(ops["MatMulInteger"], 1);
  EXPECT_EQ(ops["Conv"] + ops["Gemm"] + ops["DequantizeLinear"], 0);
  std::erase_if(ops, [](const auto& row) { return row.second == 0; });
  EXPECT_EQ(count_ops(export_onnx(quantized(convolutions(), scheme_config("w8a8dc"))).model.graph), ops);
  ops = count_ops(export_onnx(quantized(shared_input(), scheme_config("w8a8d"))).model.graph);
  EXPECT_EQ(ops["ConvInteger"], 2);
  EXPECT_EQ(ops["ConvTranspose"], 1);
  EXPECT_EQ(ops["DynamicQuantizeLinear"], 2) << "one for a value that two layers read";
}

TEST(Export, RowsOfZerosKeepTheirScale) {
  const QuantizedModel model = quantized(matmul(), scheme_config("fp8d"));
  std::vector<float> values = random_values({2, 3, 36}, 5);
  std::fill(values.begin(), values.begin() + 36, 0.0F);
  std::fill(values.begin() + 36, values.begin() + 72, 1e-40F);
  const TensorMap inputs{{"x", Tensor::of<float>({2, 3, 36}, values)}};
  EXPECT_LE(worst_gap(Engine(simulate(model)).run(inputs), Engine(export_onnx(model).model).run(inputs)), 1e-6);
}

TEST(Export, DisabledQuantizersLeaveNoTrace) {
  QuantizedModel model = quantized(gemm(), scheme_config("w8a8c"));
  for (Quantizer& quantizer : model.quantizers) quantizer.enabled = false;
  const std::map<std::string, int> expected = count_ops(model.model.graph);
  EXPECT_EQ(count_ops(export_onnx(model).model.graph), expected);
}

TEST(Export, WiderTypesHoldNarrowCodes) {
  Config config;
  config.global.weight = Spec{.format = "int3"};
  const Exported exported = export_onnx(quantized(gemm(), config));
  EXPECT_EQ(exported.notes.front(), "int3 is stored as int4: ONNX has no narrower type that holds it");
  EXPECT_EQ(exported.model.metadata.back().second, "custom");
}

TEST(Export, RefusesWhatOnnxCannotSay) {
  const auto refusal = [](const Config& config) {
    return error_of(ErrorCode::Unsupported, [&] { export_onnx(quantized(gemm(), config)); });
  };
  for (const char* scheme : {"mxfp8", "mxfp6", "mxfp4", "mxint8", "nvfp4", "bfp16"}) {
    const std::string message = refusal(scheme_config(scheme));
    EXPECT_NE(message.find("a.weight"), std::string::npos) << message;
    EXPECT_NE(message.find("w4g32"), std::string::npos) << message;
    EXPECT_NE(message.find("--fake"), std::string::npos) << message;
  }
  Config tiles;
  tiles.global.weight = Spec{.format = "int8", .granularity = Granularity::PerBlock};
  EXPECT_NE(refusal(tiles).find("per_block"), std::string::npos);
  Config rounding;
  rounding.global.input = Spec{.format = "uint8", .symmetric = false, .rounding = Rounding::Floor};
  EXPECT_NE(refusal(rounding).find("floor"), std::string::npos);
  Config narrow;
  narrow.global.input = Spec{.format = "int3"};
  EXPECT_NE(refusal(narrow).find("int3"), std::string::npos);
}

TEST(Export, FakeStoresTheQuantizedValuesAsFloats) {
  QuantizedModel model = quantized(gemm(), scheme_config("mxfp4"));
  const Exported exported = export_onnx(model, {.fake = true});
  EXPECT_EQ(count_ops(exported.model.graph), count_ops(model.model.graph));
  EXPECT_EQ(exported.notes.size(), 4) << "two weights, two inputs";
  for (Quantizer& quantizer : model.quantizers) quantizer.enabled = !quantizer.is_activation();
  EXPECT_EQ(difference(model, {8, 70}, exported), 0);
}

TEST(Export, AnUncalibratedQuantizerIsAnError) {
  QuantizedModel model = quantized(gemm(), scheme_config("w8"));
  model.quantizers[0].params = {};
  EXPECT_NE(error_of(ErrorCode::InvalidInput, [&] { export_onnx(model); }).find("not calibrated"), std::string::npos);
}

TEST(Sidecar, SaysEveryQuantizer) {
  const QuantizedModel model = quantized(convolutions(), scheme_config("w4g32"));
  const nlohmann::ordered_json sidecar = sidecar_json(model, export_onnx(model));
  EXPECT_EQ(sidecar["scheme"], "w4g32");
  EXPECT_EQ(sidecar["opset"], 21);
  EXPECT_EQ(sidecar["quantizers"].size(), model.quantizers.size());
  EXPECT_EQ(sidecar["skipped"].size(), model.skipped.size());
  const auto& last = sidecar["quantizers"].back();
  EXPECT_EQ(last["tensor"], "e.weight");
  EXPECT_EQ(last["slots"][0]["layer"], "e");
  EXPECT_EQ(last["slots"][0]["slot"], "weight");
  EXPECT_EQ(last["format"], "uint4");
  EXPECT_EQ(last["granularity"], "per_group");
  EXPECT_EQ(last["axis"], 1);
  EXPECT_EQ(last["group_size"], 32);
  EXPECT_EQ(last["scale"].size(), 7 * 2);
  EXPECT_EQ(last["zero_point"].size(), 7 * 2);
  EXPECT_LT(last["min"].get<float>(), 0);
}

}  // namespace
}  // namespace kaon
