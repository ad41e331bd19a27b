// Quantized files on integers: the bits are the interpreter's where sums are exact, and codes pass between the layers.
#include "engine/plan/codes.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "engine/engine.h"
#include "graph/build_test.h"

namespace kaon {
namespace {

class File {
 public:
  std::string op(const std::string& type, std::vector<std::string> inputs, std::vector<Attribute> attributes = {}) {
    nodes_.push_back(make_node(type, std::move(inputs), {fmt::format("v{}", nodes_.size())}, std::move(attributes)));
    return nodes_.back().outputs[0];
  }
  std::string constant(Tensor tensor) {
    constants_.push_back({fmt::format("c{}", constants_.size()), std::move(tensor), {}, {}});
    return constants_.back().name;
  }
  template <typename Code>
  std::string quantize(const std::string& x, float scale, Code zero) {
    const std::string s = constant(Tensor::scalar(scale));
    const std::string z = constant(Tensor::scalar(zero));
    return op("DequantizeLinear", {op("QuantizeLinear", {x, s, z}), s, z});
  }
  /// Weights of −8 … 8 with scales that are powers of two, and a bias: sums are exact in float32.
  std::string conv(const std::string& x, const Shape& shape, std::vector<Attribute> attributes, int least = -3) {
    std::vector<int8_t> codes(static_cast<size_t>(element_count(shape)));
    for (int8_t& code : codes) code = static_cast<int8_t>(static_cast<int>(random_() % 17) - 8);
    std::vector<float> scales, bias;
    for (int64_t i = 0; i < shape[0]; ++i) {
      scales.push_back(std::ldexp(1.0F, static_cast<int>(i % 3) + least));
      bias.push_back(0.125F * static_cast<float>(static_cast<int>(random_() % 65) - 32));
    }
    const std::string weights =
        op("DequantizeLinear", {constant(Tensor::of<int8_t>(shape, codes)), constant(Tensor::of({shape[0]}, scales))},
           {{"axis", int64_t{0}, {}}});
    return op("Conv", {x, weights, constant(Tensor::of({shape[0]}, bias))}, std::move(attributes));
  }
  Model model(const Shape& input, const std::vector<std::string>& outputs) const {
    return make_model(nodes_, constants_, {make_value("x", input)}, outputs);
  }

 private:
  std::vector<Node> nodes_;
  std::vector<Initializer> constants_;
  std::mt19937 random_{5};
};

Attribute ints(const char* name, std::vector<int64_t> values) { return {name, std::move(values), {}}; }

/// A border around data whose zero has another code than 0, depthwise, 1 x 1, an addition, a pool, a reader of floats.
Model network(const Shape& input) {
  File file;
  const std::string data = file.quantize("x", 0.5F, uint8_t{100});
  const std::string first = file.op("Relu", {file.conv(data, {16, 6, 3, 3}, {ints("pads", {1, 1, 1, 1})})});
  const std::string a = file.quantize(first, 0.5F, uint8_t{0});
  const std::vector<Attribute> depthwise{
      ints("pads", {1, 1, 1, 1}), ints("strides", {2, 2}), {"group", int64_t{16}, {}}};
  const std::string b = file.quantize(file.conv(a, {16, 1, 3, 3}, depthwise), 0.25F, int8_t{-3});
  const std::string c = file.quantize(file.conv(b, {16, 16, 1, 1}, {}), 1.0F, uint8_t{100});
  const std::string sum = file.quantize(file.op("Relu", {file.op("Add", {b, c})}), 0.5F, uint8_t{3});
  const std::string clipped =
      file.op("Clip", {file.conv(sum, {20, 16, 3, 3}, {ints("pads", {0, 1, 2, 0})}),
                       file.constant(Tensor::scalar(-20.0F)), file.constant(Tensor::scalar(30.0F))});
  const std::string d = file.quantize(clipped, 0.25F, int8_t{7});
  const std::string pooled = file.op("MaxPool", {d}, {ints("kernel_shape", {2, 2})});
  const std::string end = file.conv(pooled, {5, 20, 1, 2}, {});
  return file.model(input, {end, file.op("GlobalMaxPool", {sum}), d});
}

TEST(Codes, GiveTheInterpretersBits) {
  const Shape input{2, 6, 9, 7};
  Engine engine(network(input));
  std::mt19937 random(3);
  std::vector<float> values(static_cast<size_t>(element_count(input)));
  for (float& value : values) value = 0.25F * static_cast<float>(static_cast<int>(random() % 401) - 200);
  const TensorMap inputs{{"x", Tensor::of(input, values)}};
  Frame frame = engine.start(inputs);
  frame.finish();
  for (int run = 0; run < 2; ++run) {
    const std::vector<Tensor> planned = engine.run(inputs);
    for (size_t i = 0; i < planned.size(); ++i) {
      ASSERT_EQ(planned[i].shape(), frame.outputs()[i].shape());
      EXPECT_EQ(planned[i].to_float(), frame.outputs()[i].to_float()) << "output " << i;
    }
  }
}

TEST(Codes, PassBetweenLayers) {
  if (!__builtin_cpu_supports("avx512vnni")) GTEST_SKIP() << "this machine multiplies bytes to 16 bits, which saturate";
  const Shape input{2, 6, 9, 7};
  const auto program = Program::compile(network(input));
  std::vector<Value> table = program->new_table();
  table[static_cast<size_t>(program->find_value("x"))] =
      to_value(Tensor::of(input, std::vector<float>(static_cast<size_t>(element_count(input)))));
  const Hooks none;
  TraceShared shared;
  Trace trace = trace_program(*program, table, HookTable(*program, none), shared, /*shapes_only=*/true);
  PlanGraph graph;
  graph.values = std::move(trace.values);
  graph.traced = trace.made;
  graph.is_output.resize(graph.values.size());
  for (const int32_t id : program->outputs()) {
    graph.outputs.push_back(id);
    graph.is_output[static_cast<size_t>(id)] = true;
  }
  for (size_t i = 0; i < program->steps().size(); ++i) {
    if (trace.step_is_static[i]) continue;
    PlanOp op;
    op.step = op.position = i;
    op.node = &program->graph().nodes[i];
    op.inputs = program->steps()[i].inputs;
    op.outputs = program->steps()[i].outputs;
    graph.ops.push_back(std::move(op));
  }
  join_quantize_pairs(graph);
  reserve_codes(graph);
  fuse(graph);
  PackedWeights packed;
  use_codes(graph, *program, packed);
  std::map<CodesOp::Kind, int> counts;
  for (const PlanOp& op : graph.ops) {
    if (op.codes) ++counts[op.codes->kind];
  }
  EXPECT_EQ(counts[CodesOp::Kind::Conv], 5);
  EXPECT_EQ(counts[CodesOp::Kind::Add], 1);
  EXPECT_EQ(counts[CodesOp::Kind::Encode], 2);  // the input, and what the pool gives
  EXPECT_EQ(counts[CodesOp::Kind::Decode], 1);  // for the pool over all
}

}  // namespace
}  // namespace kaon
