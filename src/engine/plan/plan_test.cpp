// The compiled plan against the plain interpreter, over networks made to use every fusion and layout.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <dnnl.hpp>
#include <functional>
#include <random>
#include <sstream>

#include "base/parallel.h"
#include "engine/engine.h"
#include "engine/threads.h"
#include "graph/build_test.h"

namespace kaon {
namespace {

class Net {
 public:
  explicit Net(Shape input) : input_(std::move(input)) {}

  Tensor random(Shape shape, float spread = 1, float centre = 0) {
    std::normal_distribution<float> normal(centre, spread);
    std::vector<float> values(static_cast<size_t>(element_count(shape)));
    for (float& value : values) value = normal(generator_);
    return Tensor::of(std::move(shape), values);
  }
  std::string constant(Tensor tensor) {
    constants_.push_back({fmt::format("c{}", constants_.size()), std::move(tensor), {}, {}});
    return constants_.back().name;
  }
  std::string ints(std::vector<int64_t> values) {
    const auto count = std::ssize(values);
    return constant(Tensor::of<int64_t>({count}, values));
  }
  std::string scalar(float value) { return constant(Tensor::scalar(value)); }
  std::string op(std::string kind, std::vector<std::string> inputs, std::vector<Attribute> attributes = {}) {
    const std::string output = fmt::format("v{}", nodes_.size());
    nodes_.push_back(make_node(std::move(kind), std::move(inputs), {output}, std::move(attributes)));
    return output;
  }
  std::string conv(const std::string& x, int64_t in, int64_t out, int64_t kernel, int64_t stride = 1,
                   int64_t group = 1) {
    const std::string w = constant(random({out, in / group, kernel, kernel}, 0.3F));
    const std::string b = constant(random({out}, 0.3F));
    return op("Conv", {x, w, b},
              {{"kernel_shape", std::vector<int64_t>{kernel, kernel}, {}},
               {"pads", std::vector<int64_t>(4, kernel / 2), {}},
               {"strides", std::vector<int64_t>{stride, stride}, {}},
               {"group", group, {}}});
  }
  std::string batch_norm(const std::string& x, int64_t channels) {
    return op("BatchNormalization", {x, constant(random({channels}, 0.2F, 1)), constant(random({channels})),
                                     constant(random({channels})), constant(random({channels}, 0.1F, 1.5F))});
  }

  /// One engine, batches of several sizes after each other.
  void check_batches(const std::string& output, const std::vector<int64_t>& sizes) {
    ValueInfo x = make_value("x", input_);
    x.shape->front() = Dim{};
    Engine engine(make_model(nodes_, constants_, {x}, {output}, 17));
    Shape shape = input_;
    for (const int64_t size : sizes) {
      shape[0] = size;
      const TensorMap inputs{{"x", random(shape)}};
      Frame frame = engine.start(inputs);
      frame.finish();
      compare(engine.run(inputs), frame.outputs(), fmt::format("a batch of {}", size));
    }
  }

  /// One engine, inputs of several lengths (axis 1) after each other.
  void check_lengths(const std::string& output, const std::vector<int64_t>& lengths) {
    Engine engine = any_length(output);
    Shape shape = input_;
    for (const int64_t length : lengths) {
      shape[1] = length;
      const TensorMap inputs{{"x", random(shape)}};
      Frame frame = engine.start(inputs);
      frame.finish();
      compare(engine.run(inputs), frame.outputs(), fmt::format("a length of {}", length));
    }
  }
  Engine any_length(const std::string& output) const {
    ValueInfo x = make_value("x", input_);
    (*x.shape)[1] = Dim{};
    return Engine(make_model(nodes_, constants_, {x}, {output}, 17));
  }

  Engine engine(const std::vector<std::string>& outputs, int64_t opset = 17) const {
    return Engine(make_model(nodes_, constants_, {make_value("x", input_)}, outputs, opset));
  }
  TensorMap inputs() { return {{"x", random(input_)}}; }

  /// The planned run, bare and with a hook on every value, must agree with the frame's.
  void check(const std::vector<std::string>& outputs, int64_t opset = 17) {
    const TensorMap inputs = this->inputs();
    Engine engine = this->engine(outputs, opset);
    Frame frame = engine.start(inputs);
    frame.finish();
    const std::vector<Tensor> expected = frame.outputs();
    Hooks hooks;
    for (const Node& node : nodes_) {
      hooks.add(node.outputs[0],
                [](const std::string&, const Tensor&) -> std::optional<Tensor> { return std::nullopt; });
    }
    compare(engine.run(inputs), expected, "planned");
    compare(engine.run(inputs), expected, "planned again");
    compare(engine.run(inputs, hooks), expected, "hooked");
    for (const Node& node : nodes_) {
      Hooks one;
      one.add(node.outputs[0], [](const std::string&, const Tensor&) -> std::optional<Tensor> { return std::nullopt; });
      compare(engine.run(inputs, one), expected, "hooked at " + node.label());
    }
  }

 private:
  static void compare(const std::vector<Tensor>& actual, const std::vector<Tensor>& expected, const std::string& what) {
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_EQ(actual[i].shape(), expected[i].shape()) << what;
      ASSERT_EQ(actual[i].type(), expected[i].type()) << what;
      const std::vector<float> a = actual[i].to_float();
      const std::vector<float> e = expected[i].to_float();
      double energy = 0;
      double error = 0;
      for (size_t k = 0; k < a.size(); ++k) {
        energy += static_cast<double>(e[k]) * e[k];
        error += std::pow(static_cast<double>(a[k]) - e[k], 2);
      }
      // 100 dB: float32 sums in another order, nothing more.
      EXPECT_LE(error, 1e-10 * energy) << what << ", output " << i;
    }
  }

  Shape input_;
  std::vector<Node> nodes_;
  std::vector<Initializer> constants_;
  std::mt19937 generator_{7};
};

TEST(Plan, ResidualBlockWithBatchNorm) {
  Net net({2, 16, 14, 14});
  const std::string a = net.op("Relu", {net.batch_norm(net.conv("x", 16, 16, 3), 16)});
  const std::string b = net.batch_norm(net.conv(a, 16, 16, 3), 16);
  net.check({net.op("Relu", {net.op("Add", {b, a})})});
}

TEST(Plan, ResidualReadTwiceIsNotOverwritten) {
  Net net({1, 8, 9, 9});
  const std::string a = net.op("Relu", {net.conv("x", 8, 8, 3)});
  const std::string b = net.op("Add", {net.conv(a, 8, 8, 3), a});
  const std::string c = net.op("Add", {a, net.conv(b, 8, 8, 1)});
  net.check({net.op("Mul", {c, b})});
}

TEST(Plan, InvertedBottleneckWithOddChannels) {
  Net net({3, 5, 17, 13});
  const auto clip = [&](const std::string& x) { return net.op("Clip", {x, net.scalar(0), net.scalar(6)}); };
  const std::string wide = clip(net.conv("x", 5, 27, 1));
  const std::string deep = clip(net.conv(wide, 27, 27, 3, 1, 27));
  net.check({net.op("Add", {net.conv(deep, 27, 5, 1), "x"})});
}

TEST(Plan, BatchNormBehindRelu) {
  Net net({2, 12, 10, 10});
  const std::string a = net.batch_norm(net.op("Relu", {net.conv("x", 12, 12, 3, 1, 12)}), 12);
  net.check({net.batch_norm(net.op("Relu", {net.conv(a, 12, 20, 1)}), 20)});
}

TEST(Plan, HardSwishSpelledOutWithScales) {
  Net net({1, 16, 12, 12});
  const auto scaled = [&](const std::string& x, float a, float b) {
    return net.op("Add", {net.op("Mul", {net.scalar(a), x}), net.scalar(b)});
  };
  const auto hard_swish = [&](const std::string& x) {
    const std::string gate = net.op("Clip", {net.op("Add", {x, net.scalar(3)}), net.scalar(0), net.scalar(6)});
    return net.op("Div", {net.op("Mul", {x, gate}), net.scalar(6)});
  };
  const std::string a = scaled(hard_swish(scaled(net.conv("x", 16, 16, 3, 1, 16), 1.4F, 0.6F)), 0.2F, -0.1F);
  net.check({hard_swish(net.conv(a, 16, 24, 1))});
}

TEST(Plan, SwishAndSqueezeExcite) {
  Net net({2, 16, 8, 8});
  const std::string a = net.conv("x", 16, 32, 3);
  const std::string swish = net.op("Mul", {a, net.op("Sigmoid", {a})});
  const std::string squeezed = net.op("Relu", {net.conv(net.op("GlobalAveragePool", {swish}), 32, 8, 1)});
  const std::string gate = net.op("HardSigmoid", {net.conv(squeezed, 8, 32, 1)});
  net.check({net.conv(net.op("Mul", {swish, gate}), 32, 4, 1)});
}

TEST(Plan, PoolsPadsSlicesAndConcat) {
  Net net({2, 6, 15, 15});
  const std::vector<Attribute> window{{"kernel_shape", std::vector<int64_t>{3, 3}, {}},
                                      {"strides", std::vector<int64_t>{2, 2}, {}}};
  const std::string a = net.op("Relu", {net.conv("x", 6, 16, 3)});
  const std::string most = net.op("MaxPool", {a}, {window[0], window[1], {"ceil_mode", int64_t{1}, {}}});
  const std::string mean = net.op("AveragePool", {a}, window);
  const std::string sliced =
      net.op("Slice", {a, net.ints({0, 0}), net.ints({13, 13}), net.ints({2, 3}), net.ints({2, 2})});
  const std::string padded = net.op("Pad", {sliced, net.ints({0, 3, 0, 0, 0, 5, 0, 0})});
  const std::string joined = net.op("Concat", {most, mean, padded}, {{"axis", int64_t{1}, {}}});
  net.check({net.conv(joined, 16 + 16 + 24, 7, 1), net.op("Flatten", {net.op("GlobalAveragePool", {joined})})});
}

TEST(Plan, ConvTransposeWithGroupsAndOutputPadding) {
  Net net({2, 8, 5, 7});
  const std::string w = net.constant(net.random({8, 3, 3, 3}, 0.3F));
  const std::string b = net.constant(net.random({6}));
  const std::string y = net.op("ConvTranspose", {"x", w, b},
                               {{"strides", std::vector<int64_t>{2, 2}, {}},
                                {"pads", std::vector<int64_t>{1, 1, 1, 1}, {}},
                                {"output_padding", std::vector<int64_t>{1, 0}, {}},
                                {"group", int64_t{2}, {}}});
  net.check({net.op("Relu", {y})});
}

/// What oneDNN says of each primitive that `work` executes: "convolution,jit:avx2,forward_inference,src_f32::…".
std::vector<std::string> executed(const std::function<void()>& work) {
  testing::internal::CaptureStdout();
  dnnl::set_verbose(1);
  work();
  dnnl::set_verbose(0);
  std::istringstream log(testing::internal::GetCapturedStdout());
  std::vector<std::string> primitives;
  for (std::string line; std::getline(log, line);) {
    const std::string_view kStart = ",exec,cpu,";
    const size_t start = line.find(kStart);
    if (start != std::string::npos) primitives.push_back(line.substr(start + kStart.size()));
  }
  return primitives;
}

TEST(Plan, WhatFollowsAConvTransposeDoesNotSlowItDown) {
  const std::vector<std::pair<std::string, std::function<std::string(Net&, const std::string&)>>> kFollowers{
      {"nothing", [](Net&, const std::string& y) { return y; }},
      {"Relu", [](Net& net, const std::string& y) { return net.op("Relu", {y}); }},
      {"Add",
       [](Net& net, const std::string& y) {
         return net.op("Add", {y, net.constant(net.random({24, 1, 1}))});
       }},
      {"residual",
       [](Net& net, const std::string& y) {
         return net.op("Add", {y, net.op("Neg", {y})});
       }},
      {"batch norm", [](Net& net, const std::string& y) { return net.op("Relu", {net.batch_norm(y, 24)}); }},
      {"a scale and a clip",
       [](Net& net, const std::string& y) {
         return net.op("Clip", {net.op("Mul", {y, net.scalar(0.3F)}), net.scalar(-1), net.scalar(1)});
       }},
      {"Sigmoid behind batch norm",
       [](Net& net, const std::string& y) { return net.op("Sigmoid", {net.batch_norm(y, 24)}); }},
  };
  for (const int64_t kernel : {2, 4}) {  // windows side by side, and windows that overlap
    for (const auto& [name, follow] : kFollowers) {
      SCOPED_TRACE(fmt::format("{} behind a kernel of {}", name, kernel));
      Net net({1, 32, 10, 12});
      const Tensor weight = net.random({32, 24, kernel, kernel}, 0.3F);
      const std::string y = net.op("ConvTranspose", {"x", net.constant(weight), net.constant(net.random({24}))},
                                   {{"strides", std::vector<int64_t>{2, 2}, {}}});
      const std::string output = follow(net, y);
      net.check({output});
      Engine engine = net.engine({output});
      const TensorMap inputs = net.inputs();
      const std::vector<std::string> primitives = executed([&] { engine.run(inputs); });
      EXPECT_FALSE(primitives.empty());
      for (const std::string& one : primitives) {
        EXPECT_EQ(one.find("ref"), std::string::npos) << one;
        if (!one.starts_with("deconvolution")) continue;
        // Reference code inside an implementation of another name.
        EXPECT_EQ(one.find("attr-post-ops"), std::string::npos) << one;
        EXPECT_EQ(one.find("bia_f32"), std::string::npos) << one;
      }
    }
  }
}

/// Attention with a causal mask, a normalization and a table of positions.
std::string attention(Net& net) {
  constexpr int64_t kWidth = 32, kLongest = 64;
  const std::string zero = net.constant(Tensor::scalar(int64_t{0}));
  const std::string one = net.constant(Tensor::scalar(int64_t{1}));
  const std::string length = net.op("Gather", {net.op("Shape", {"x"}), one}, {{"axis", int64_t{0}, {}}});
  const std::string until = net.op("Unsqueeze", {length, net.ints({0})});
  const std::string places =
      net.op("Slice", {net.constant(net.random({kLongest, kWidth})), net.ints({0}), until, net.ints({0})});
  const std::string x = net.op("Add", {"x", places});
  const std::string mean =
      net.op("ReduceMean", {net.op("Pow", {x, net.scalar(2)})}, {{"axes", std::vector<int64_t>{-1}, {}}});
  const std::string normal = net.op("Div", {x, net.op("Sqrt", {net.op("Add", {mean, net.scalar(1e-5F)})})});
  const auto project = [&] { return net.op("MatMul", {normal, net.constant(net.random({kWidth, kWidth}, 0.3F))}); };
  const std::string keys = net.op("Transpose", {project()}, {{"perm", std::vector<int64_t>{0, 2, 1}, {}}});
  const std::string row = net.op("Range", {zero, length, one});
  const std::string later =
      net.op("Less", {net.op("Unsqueeze", {row, net.ints({1})}), net.op("Unsqueeze", {row, net.ints({0})})});
  const std::string scores = net.op("Where", {later, net.scalar(-1e9F), net.op("MatMul", {project(), keys})});
  const std::string mixed = net.op("MatMul", {net.op("Softmax", {scores}, {{"axis", int64_t{-1}, {}}}), project()});
  const std::string both = net.op("Concat", {mixed, net.op("Relu", {x})}, {{"axis", int64_t{-1}, {}}});
  return net.op("Gemm",
                {net.op("Reshape", {both, net.ints({-1, 2 * kWidth})}), net.constant(net.random({kWidth, 2 * kWidth}))},
                {{"transB", int64_t{1}, {}}});
}

/// Heads of `width` numbers, whose products have few terms and few columns, then products with all that may follow.
std::string narrow_heads(Net& net, int64_t width) {
  constexpr int64_t kHeads = 4;
  const int64_t all = kHeads * width;
  const auto heads = [&](std::vector<int64_t> perm) {
    const std::string apart = net.op("Reshape", {"x", net.ints({2, -1, kHeads, width})});
    return net.op("Transpose", {apart}, {{"perm", std::move(perm), {}}});
  };
  const std::string products = net.op("MatMul", {heads({0, 2, 1, 3}), heads({0, 2, 3, 1})});
  const std::string scores = net.op("Div", {products, net.scalar(std::sqrt(static_cast<float>(width)))});
  const std::string mixed =
      net.op("MatMul", {net.op("Softmax", {scores}, {{"axis", int64_t{-1}, {}}}), heads({0, 2, 1, 3})});
  const std::string joined =
      net.op("Reshape",
             {net.op("Transpose", {mixed}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}, {}}}), net.ints({2, -1, all})});
  const auto project = [&] { return net.op("MatMul", {joined, net.constant(net.random({all, all}, 0.1F))}); };
  const std::string gate = project();
  const std::string gated = net.op("Mul", {net.op("Mul", {gate, net.op("Sigmoid", {gate})}), project()});
  const std::string shifted = net.op("Add", {project(), net.constant(net.random({all}))});
  const std::string sum = net.op("Add", {net.op("Relu", {shifted}), gated});
  return net.op("Add", {net.op("MatMul", {sum, net.constant(net.random({all, all}, 0.1F))}), sum});
}

TEST(Plan, LengthsOfNarrowHeads) {
  for (const int64_t width : {8, 11, 16}) {
    Net net({2, 8, 4 * width});
    net.check_lengths(narrow_heads(net, width), {1, 2, 3, 7, 16, 17, 31, 40, 7, 100});
  }
}

TEST(Plan, ALengthGivesTheSameBitsWheneverItIsRun) {
  Net net({2, 8, 32});
  const std::string output = narrow_heads(net, 8);
  const TensorMap inputs{{"x", net.random({2, 19, 32})}};
  Engine engine = net.any_length(output);
  const std::vector<float> first = engine.run(inputs)[0].to_float();
  EXPECT_EQ(engine.run(inputs)[0].to_float(), first);
  for (int64_t length = 20; length < 60; ++length) engine.run({{"x", net.random({2, length, 32})}});
  EXPECT_EQ(engine.run(inputs)[0].to_float(), first);
  EXPECT_EQ(net.any_length(output).run(inputs)[0].to_float(), first);
}

TEST(Plan, ManyLengthsAfterEachOther) {
  Net net({2, 8, 32});
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 40; ++i) lengths.push_back(1 + i * 7 % 33);
  net.check_lengths(attention(net), lengths);
}

TEST(Plan, AnyLengthMakesNoKernelForSmallProducts) {
  Net net({1, 40, 32});
  Engine engine = net.any_length(attention(net));
  const TensorMap inputs = net.inputs();
  int64_t products = 0;
  for (const std::string& one : executed([&] { engine.run(inputs); })) {
    if (!one.starts_with("matmul")) continue;
    ++products;
    EXPECT_TRUE(one.starts_with("matmul,gemm")) << one;
  }
  EXPECT_EQ(products, 6);
}

TEST(Plan, QuantizersOfAFileArePartOfTheConvolution) {
  Net net({1, 16, 12, 12});
  const std::string scale = net.scalar(0.125F);
  const std::string zero = net.constant(Tensor::scalar(uint8_t{3}));
  // Weights in codes, with a scale for each output.
  const std::string codes = net.constant(Tensor::of<int8_t>({16, 16, 1, 1}, std::vector<int8_t>(256, 7)));
  const std::string weights =
      net.op("DequantizeLinear", {codes, net.constant(net.random({16}, 0.01F, 0.1F))}, {{"axis", int64_t{0}, {}}});
  const std::string y = net.op("Relu", {net.op("Conv", {"x", weights})});
  const std::string output = net.op("DequantizeLinear", {net.op("QuantizeLinear", {y, scale, zero}), scale, zero});
  net.check({output});
  Engine engine = net.engine({output});
  const TensorMap inputs = net.inputs();
  const std::vector<std::string> primitives = executed([&] { engine.run(inputs); });
  EXPECT_TRUE(std::ranges::any_of(primitives, [](const std::string& one) {
    return one.starts_with("convolution") && one.find("eltwise_round") != std::string::npos;
  }));
}

TEST(Plan, ConvolutionsOfAColumnRunAlongIt) {
  Net net({2, 8, 41, 1});
  const auto conv = [&](const std::string& x, int64_t kernel, std::vector<Attribute> attributes) {
    const std::string w = net.constant(net.random({8, 8, kernel, 1}, 0.3F));
    return net.op("Conv", {x, w, net.constant(net.random({8}))}, std::move(attributes));
  };
  const std::string a = net.op("Relu", {net.batch_norm(conv("x", 5, {}), 8)});
  const std::string b = conv(a, 3,
                             {{"strides", std::vector<int64_t>{2, 3}, {}},
                              {"dilations", std::vector<int64_t>{3, 1}, {}},
                              {"pads", std::vector<int64_t>{2, 0, 1, 0}, {}}});
  const std::string c = net.op("Add", {conv(b, 3, {{"auto_pad", std::string("SAME_UPPER"), {}}}), b});
  const std::string output = net.op("Mul", {c, net.constant(net.random({8, 1, 1}))});
  net.check({output, b});
  Engine engine = net.engine({output});
  const TensorMap inputs = net.inputs();
  int64_t rows = 0;
  for (const std::string& one : executed([&] { engine.run(inputs); })) {
    if (!one.starts_with("convolution")) continue;
    rows += one.find("_ih1oh1kh1") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(rows, 2);  // what adds a residual stays as it is
}

std::shared_ptr<Graph> branch(std::vector<Node> nodes, const std::string& output) {
  auto graph = std::make_shared<Graph>();
  graph->name = "branch";
  graph->nodes = std::move(nodes);
  graph->outputs = {{.name = output}};
  return graph;
}

TEST(Plan, AnIfThatShapesDecideIsPartOfIt) {
  Net net({3, 8});
  const std::string rows = net.op("Gather", {net.op("Shape", {"x"}), net.constant(Tensor::scalar(int64_t{0}))});
  const std::string three = net.op("Equal", {rows, net.constant(Tensor::scalar(int64_t{3}))});
  const std::string shape = net.ints({-1, 24});
  const std::string chosen =
      net.op("If", {three},
             {{"then_branch", branch({make_node("Reshape", {"x", shape}, {"flat"})}, "flat"), {}},
              {"else_branch", branch({make_node("NonZero", {"x"}, {"some"})}, "some"), {}}});
  const std::string output = net.op("Relu", {net.op("MatMul", {chosen, net.constant(net.random({24, 16}))})});
  net.check({output});
  Engine engine = net.engine({output});
  const TensorMap inputs = net.inputs();
  EXPECT_FALSE(executed([&] { engine.run(inputs); }).empty());
}

TEST(Plan, ABranchThatHoldsTheNetworkHasAPlan) {
  Net net({4, 24});
  const std::string large =
      net.op("Greater", {net.op("ReduceMax", {"x"}, {{"keepdims", int64_t{0}, {}}}), net.scalar(-99)});
  const std::string output = net.op("If", {large},
                                    {{"then_branch",
                                      branch({make_node("Constant", {}, {"w"}, {{"value", net.random({24, 16}), {}}}),
                                              make_node("MatMul", {"x", "w"}, {"m"}), make_node("Relu", {"m"}, {"r"})},
                                             "r"),
                                      {}},
                                     {"else_branch", branch({make_node("Neg", {"x"}, {"n"})}, "n"), {}}});
  net.check({output});
  Engine engine = net.engine({output});
  const TensorMap inputs = net.inputs();
  EXPECT_FALSE(executed([&] { engine.run(inputs); }).empty());
}

TEST(Plan, ABranchPacksTheWeightsAroundIt) {
  Net net({1, 8, 9, 9});
  const std::string w = net.constant(net.random({8, 8, 3, 3}, 0.3F));
  const std::string large =
      net.op("Greater", {net.op("ReduceMax", {"x"}, {{"keepdims", int64_t{0}, {}}}), net.scalar(-99)});
  const std::string output = net.op("If", {large},
                                    {{"then_branch", branch({make_node("Conv", {"x", w}, {"c"})}, "c"), {}},
                                     {"else_branch", branch({make_node("Neg", {"x"}, {"n"})}, "n"), {}}});
  net.check({output});
  Engine engine = net.engine({output});
  const TensorMap inputs = net.inputs();
  const std::vector<std::string> primitives = executed([&] { engine.run(inputs); });
  EXPECT_TRUE(std::ranges::any_of(primitives, [](const std::string& one) { return one.starts_with("convolution"); }));
  // Other weights are not those that were packed.
  const Tensor zeros = Tensor::of(Shape{8, 8, 3, 3}, std::vector<float>(576));
  const std::vector<float> changed = engine.run(inputs, {}, {.off = {}, .constants = {{w, zeros}}})[0].to_float();
  EXPECT_TRUE(std::ranges::all_of(changed, [](float value) { return value == 0; }));
}

TEST(Plan, OneAndThreeDimensionalConvolutions) {
  Net flat({2, 6, 31});
  const std::string w = flat.constant(flat.random({10, 3, 5}, 0.3F));
  flat.check({flat.op(
      "Tanh", {flat.op("Conv", {"x", w}, {{"group", int64_t{2}, {}}, {"dilations", std::vector<int64_t>{2}, {}}})})});
  Net deep({1, 3, 6, 7, 8});
  const std::string v = deep.constant(deep.random({4, 3, 3, 3, 3}, 0.3F));
  deep.check({deep.op("Relu", {deep.op("Conv", {"x", v}, {{"auto_pad", std::string("SAME_LOWER"), {}}})})});
}

TEST(Plan, Attention) {
  Net net({2, 10, 24});
  const auto heads = [&](const std::string& x) {
    const std::string split = net.op("Reshape", {x, net.ints({0, 0, 3, 8})});
    return net.op("Transpose", {split}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}, {}}});
  };
  const auto project = [&](const std::string& x) {
    return net.op("MatMul", {x, net.constant(net.random({24, 24}, 0.2F))});
  };
  const std::string mean =
      net.op("ReduceMean", {net.op("Pow", {"x", net.scalar(2)})}, {{"axes", std::vector<int64_t>{-1}, {}}});
  const std::string x = net.op("Mul", {net.op("Div", {"x", net.op("Sqrt", {net.op("Add", {mean, net.scalar(1e-5F)})})}),
                                       net.constant(net.random({24}))});
  const std::string q = heads(net.op("Add", {project(x), net.constant(net.random({24}))}));
  const std::string k = net.op("Transpose", {heads(project(x))}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}, {}}});
  const std::string scores =
      net.op("Softmax", {net.op("Mul", {net.op("MatMul", {q, k}), net.scalar(0.35F)})}, {{"axis", int64_t{-1}, {}}});
  const std::string mixed = net.op("Transpose", {net.op("MatMul", {scores, heads(project(x))})},
                                   {{"perm", std::vector<int64_t>{0, 2, 1, 3}, {}}});
  net.check({net.op("Add", {project(net.op("Reshape", {mixed, net.ints({0, 0, -1})})), "x"})});
}

TEST(Plan, BroadcastsOfEveryKind) {
  Net net({4, 3, 5});
  const std::string row = net.constant(net.random({5}));
  const std::string column = net.constant(net.random({3, 1}, 0.1F, 2));
  const std::string outer = net.constant(net.random({4, 1, 1}));
  const std::string a = net.op("Sub", {row, net.op("Div", {"x", column})});
  const std::string b = net.op("Max", {net.op("Mul", {outer, a}), net.op("Min", {"x", net.scalar(0.2F)})});
  net.check({b, net.op("Neg", {net.op("Transpose", {b}, {{"perm", std::vector<int64_t>{2, 0, 1}, {}}})})});
}

TEST(Plan, ValuesReadThroughSeveralViewsStayAlive) {
  Net net({2, 4, 6});
  const std::string a = net.op("Exp", {"x"});
  const std::string view = net.op("Reshape", {a, net.ints({2, 24})});
  const std::string turned = net.op("Transpose", {a}, {{"perm", std::vector<int64_t>{0, 2, 1}, {}}});
  const std::string b = net.op("Neg", {a});
  net.check({net.op("Relu", {view}), net.op("Sqrt", {turned}), b});
}

TEST(Plan, ABatchInSlicesEqualsTheWhole) {
  Net net({7, 4, 64, 64});
  const std::string a = net.op("Relu", {net.conv("x", 4, 32, 3)});
  const std::string pooled = net.op("Flatten", {net.op("GlobalAveragePool", {net.conv(a, 32, 8, 3, 2)})});
  net.check({net.op("Gemm", {pooled, net.constant(net.random({8, 3})), net.constant(net.random({3}))})});
}

TEST(Plan, BatchesOfOtherSizesAreRunInTheSameSlices) {
  Net net({1, 4, 64, 64});
  const std::string a = net.op("Relu", {net.conv("x", 4, 32, 3)});
  net.check_batches(net.op("GlobalAveragePool", {net.conv(a, 32, 8, 3, 2)}), {7, 2, 1, 9, 3});
}

TEST(Plan, DividesByWhatAConvolutionGives) {
  Net net({1, 2, 4, 4});
  const std::string three = net.op("Conv", {"x", net.constant(Tensor::of<float>({1, 2, 1, 1}, std::vector<float>(2))),
                                            net.constant(Tensor::of<float>({1}, std::vector<float>{3}))});
  const std::string whole = net.op("Cast", {three}, {{"to", int64_t{7}, {}}});
  net.check({net.op("Cast", {net.op("Div", {net.ints({7}), whole})}, {{"to", int64_t{1}, {}}})});
}

TEST(Plan, SmallStepsBetweenLargeOnesRunOnOneThread) {
  const int before = thread_count();
  set_thread_count(2);
  Net net({1, 16, 48, 48});
  const std::string large = net.op("Relu", {net.conv("x", 16, 32, 3)});
  const std::string small = net.op("Relu", {net.conv(net.conv(large, 32, 4, 1, 8), 4, 4, 3)});
  const std::string again = net.conv(net.conv(large, 32, 32, 3), 32, 4, 1, 8);
  const std::string y = net.op("Add", {small, again});
  net.check({y});
  EXPECT_EQ(ThreadScope::current(), 2);
  const TensorMap inputs = net.inputs();
  Engine engine = net.engine({y});
  const std::vector<float> with_two = engine.run(inputs)[0].to_float();
  set_thread_count(1);
  EXPECT_EQ(net.engine({y}).run(inputs)[0].to_float(), with_two);
  set_thread_count(before);
}

TEST(Plan, AxesThatTheOpsetTakesFromElsewhereAreNotReducedOver) {
  Net net({6, 5});
  net.check({net.op("ReduceMean", {"x"}, {{"axes", std::vector<int64_t>{1}, {}}})}, 19);
}

TEST(Plan, MixingSamplesIsNotSliced) {
  Net net({6, 16, 64, 64});
  const std::string a = net.op("Relu", {net.conv("x", 16, 16, 3)});
  const std::string centred = net.op("Sub", {a, net.op("ReduceMean", {a}, {{"axes", std::vector<int64_t>{0}, {}}})});
  net.check({net.op("GlobalAveragePool", {net.op("Abs", {centred})})});
}

TEST(Plan, ShapesThatFollowTheDataAreInterpreted) {
  Net net({2, 5});
  const std::string where = net.op("NonZero", {net.op("Floor", {"x"})});
  net.check({net.op("Cast", {where}, {{"to", int64_t{1}, {}}})});
}

}  // namespace
}  // namespace kaon
