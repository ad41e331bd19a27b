// FakeQuantize and watchers in a plan: nothing is lost, nothing is copied, bits are those of numerics.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "engine/engine.h"
#include "engine/pixels.h"
#include "engine/plan/plan_op.h"
#include "graph/build_test.h"
#include "graph/fake_quantize.h"

namespace kaon {
namespace {

class Net {
 public:
  explicit Net(Shape input) : input_(std::move(input)) {}

  Tensor random(const Shape& shape, float spread = 1) {
    std::normal_distribution<float> normal(0, spread);
    std::vector<float> values(static_cast<size_t>(element_count(shape)));
    for (float& value : values) value = normal(generator_);
    return Tensor::of(shape, values);
  }
  std::string constant(Tensor tensor) {
    constants_.push_back({fmt::format("c{}", constants_.size()), std::move(tensor), {}, {}});
    return constants_.back().name;
  }
  std::string op(std::string kind, std::vector<std::string> inputs, std::vector<Attribute> attributes = {}) {
    const std::string output = fmt::format("v{}", nodes_.size());
    nodes_.push_back(make_node(std::move(kind), std::move(inputs), {output}, std::move(attributes)));
    return output;
  }
  /// Weights and inputs that are small whole numbers give sums that are exact in any order.
  std::string conv(const std::string& x, int64_t in, int64_t out, int64_t kernel, int64_t group = 1) {
    Tensor w = random({out, in / group, kernel, kernel}, 2);
    std::vector<float> values = w.to_float();
    for (float& value : values) value = std::round(value);
    return op("Conv", {x, constant(Tensor::of(w.shape(), values))},
              {{"kernel_shape", std::vector<int64_t>{kernel, kernel}, {}},
               {"pads", std::vector<int64_t>(4, kernel / 2), {}},
               {"group", group, {}}});
  }
  /// With whole numbers and powers of two for constants.
  std::string batch_norm(const std::string& x, int64_t channels) {
    std::vector<float> scale, shift, mean;
    for (int64_t c = 0; c < channels; ++c) {
      scale.push_back(std::ldexp(c % 2 == 0 ? 1.0F : -1.0F, static_cast<int>(c % 4) - 2));
      shift.push_back(static_cast<float>(c % 7 - 3));
      mean.push_back(static_cast<float>(c % 5 - 2));
    }
    const auto along = [&](const std::vector<float>& values) { return constant(Tensor::of({channels}, values)); };
    return op("BatchNormalization",
              {x, along(scale), along(shift), along(mean), along(std::vector<float>(scale.size(), 1))},
              {{"epsilon", 0.0F, {}}});
  }
  std::string quantize(const std::string& x, const TensorSpec& spec) { return place(make_fake_quantize(spec, x, "")); }
  std::string quantize(const std::string& x, const TensorSpec& spec, float scale, int32_t zero) {
    return place(make_fake_quantize(spec, x, "", constant(Tensor::scalar(scale)), constant(Tensor::scalar(zero))));
  }
  /// uint8 with a scale that is a power of two, so that whole numbers stay exact through the next sum.
  std::string quantize(const std::string& x) { return quantize(x, {.format = "uint8", .symmetric = false}, 0.5F, 100); }

  std::string place(Node node) {
    node.outputs = {fmt::format("v{}", nodes_.size())};
    nodes_.push_back(std::move(node));
    return nodes_.back().outputs[0];
  }

  Model model(const std::vector<std::string>& outputs) const {
    return make_model(nodes_, constants_, {make_value("x", input_)}, outputs);
  }
  /// The planned run gives the interpreter's bits.
  void check(const std::vector<std::string>& outputs) {
    Engine engine(model(outputs));
    Tensor x = random(input_, 3);
    std::vector<float> values = x.to_float();
    for (float& value : values) value = std::round(value);
    const TensorMap inputs{{"x", Tensor::of(input_, values)}};
    Frame frame = engine.start(inputs);
    frame.finish();
    for (int run = 0; run < 2; ++run) {
      const std::vector<Tensor> planned = engine.run(inputs);
      for (size_t i = 0; i < planned.size(); ++i) {
        ASSERT_EQ(planned[i].shape(), frame.outputs()[i].shape());
        EXPECT_EQ(planned[i].to_float(), frame.outputs()[i].to_float()) << "output " << i << ", run " << run;
      }
    }
  }

 private:
  Shape input_;
  std::vector<Node> nodes_;
  std::vector<Initializer> constants_;
  std::mt19937 generator_{11};
};

TEST(FakeQuantizePlan, ResidualBlockWithOddChannels) {
  Net net({2, 5, 9, 7});
  const std::string x = net.quantize("x");
  const std::string a = net.quantize(net.op("Relu", {net.conv(x, 5, 21, 3)}));
  const std::string b = net.quantize(net.conv(a, 21, 21, 3, 21));
  const std::string sum = net.quantize(net.op("Relu", {net.op("Add", {a, b})}));
  net.check({net.quantize(net.conv(sum, 21, 4, 1)), sum});
}

TEST(FakeQuantizePlan, ConvolutionsTakeTwoQuantizersAndTheBatchNormBetween) {
  const TensorSpec spec{.format = "int8"};
  for (const int64_t channels : {16, 21, 64}) {
    for (const int64_t group : {int64_t{1}, channels}) {
      for (const int64_t kernel : {1, 3}) {
        SCOPED_TRACE(fmt::format("{} channels in {} groups, kernel {}", channels, group, kernel));
        Net net({2, channels, 8, 8});
        const std::string a = net.op("Relu", {net.conv("x", channels, channels, kernel, group)});
        const std::string b = net.batch_norm(net.quantize(a, spec, 0.5F, 0), channels);
        const std::string c = net.quantize(net.op("Relu", {b}), spec, 0.25F, -100);
        const std::string d =
            net.batch_norm(net.op("Relu", {net.conv(c, channels, channels, kernel, group)}), channels);
        net.check({net.quantize(d, spec, 16, 3)});
      }
    }
  }
}

TEST(FakeQuantizePlan, ActivationsBetweenTwoQuantizers) {
  const TensorSpec spec{.format = "int8"};
  for (const int64_t group : {1, 32}) {
    SCOPED_TRACE(fmt::format("{} groups", group));
    Net net({2, 32, 8, 8});
    const auto conv = [&] { return net.quantize(net.conv("x", 32, 32, 3, group), spec, 0.5F, 0); };
    // Steps and slopes are powers of two, so that all results are exact.
    const std::string leaky = net.op("LeakyRelu", {conv()}, {{"alpha", 0.25F, {}}});
    const std::string gate = net.op("HardSigmoid", {conv()}, {{"alpha", 0.125F, {}}, {"beta", 0.5F, {}}});
    const std::string scaled = net.op("Mul", {conv(), net.constant(Tensor::scalar(4.0F))});
    net.check({net.quantize(leaky, spec, 0.25F, 5), net.quantize(gate, spec, 0.125F, -4),
               net.quantize(scaled, spec, 8, 0), net.quantize(conv(), spec, 2, 1),
               net.quantize(net.quantize(net.conv("x", 32, 32, 3, group), spec, 1, 0), spec, 2, 1)});
  }
}

TEST(FakeQuantizePlan, AWeightThatIsComputedLeavesThePostOpsApart) {
  const TensorSpec spec{.format = "int8"};
  Net net({2, 16, 3, 3});
  const std::string a = net.quantize(net.op("Conv", {"x", "x"}), spec, 4, 0);
  const std::string b = net.op("LeakyRelu", {a}, {{"alpha", 0.25F, {}}});
  net.check({net.quantize(b, spec, 2, 10)});
}

TEST(FakeQuantizePlan, ClipsThatLieOutsideTheGrid) {
  Net net({1, 16, 5, 5});
  const TensorSpec spec{.format = "int4"};  // -4 … 3.5
  const auto clipped = [&](float low, float high) {
    const std::string conv = net.conv("x", 16, 16, 1);
    const std::string bounded =
        net.op("Clip", {conv, net.constant(Tensor::scalar(low)), net.constant(Tensor::scalar(high))});
    return net.quantize(bounded, spec, 0.5F, 0);
  };
  net.check({clipped(5, 9), clipped(-9, -6), clipped(1.25F, 2.25F), clipped(-100, 2)});
}

TEST(FakeQuantizePlan, OtherScalesDifferOnTiesAlone) {
  const TensorSpec spec{.format = "int8"};
  const float step = 0.37F;
  Net net({2, 32, 16, 16});
  const std::string y = net.quantize(net.op("Relu", {net.conv("x", 32, 32, 3)}), spec, step, -128);
  Engine engine(net.model({y}));
  const TensorMap inputs{{"x", net.random({2, 32, 16, 16})}};
  Frame frame = engine.start(inputs);
  frame.finish();
  const std::vector<float> wanted = frame.outputs()[0].to_float();
  const std::vector<float> planned = engine.run(inputs)[0].to_float();
  int64_t differ = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (planned[i] == wanted[i]) continue;
    ++differ;
    EXPECT_NEAR(planned[i], wanted[i], step * 1.01F);
  }
  EXPECT_LE(differ, 2);  // of 16384
}

TEST(FakeQuantizePlan, PairsOfQuantizeAndDequantizeGiveTheSameBits) {
  Net net({2, 12, 9, 7});
  const auto u8 = [&](uint8_t zero) { return net.constant(Tensor::scalar(zero)); };
  const auto scale = [&](float step) { return net.constant(Tensor::scalar(step)); };
  const std::string step = scale(0.5F);
  const std::string zero = u8(100);
  const auto pair = [&](const std::string& x, const std::string& s, const std::string& z) {
    return net.op("DequantizeLinear", {net.op("QuantizeLinear", {x, s, z}), s, z});
  };
  const std::string a = pair(net.op("Relu", {net.conv("x", 12, 21, 3)}), step, zero);
  const std::string b = pair(net.conv(a, 21, 21, 3, 21), scale(0.25F), net.constant(Tensor::scalar(int8_t{-3})));
  const std::string sum =
      pair(net.op("Relu", {net.op("Add", {a, b})}), scale(2), net.constant(Tensor::scalar(int16_t{0})));
  // Codes with two readers, with a reader of other parameters, and as an output of the model.
  const std::string codes = net.op("QuantizeLinear", {sum, step, zero});
  const std::string left = net.op("DequantizeLinear", {codes, step, zero});
  const std::string right = net.op("DequantizeLinear", {codes, scale(0.5F), u8(100)});
  const std::string others = net.op("QuantizeLinear", {sum, step, zero});
  const std::string shifted = net.op("DequantizeLinear", {others, step, u8(90)});
  const std::string shown = net.op("QuantizeLinear", {b, step});
  // One scale for each channel.
  std::vector<float> steps(21);
  for (size_t i = 0; i < steps.size(); ++i) steps[i] = std::ldexp(1.0F, static_cast<int>(i % 5) - 3);
  const std::string channels = net.constant(Tensor::of({21}, steps));
  const std::string zeros = net.constant(Tensor::of<uint8_t>({21}, std::vector<uint8_t>(21, 128)));
  net.check({left, net.op("Mul", {left, right}), right, shifted, shown, net.op("DequantizeLinear", {shown, step}),
             pair(sum, channels, zeros)});
}

TEST(FakeQuantizePlan, AnInputThatLivesOnIsNotOverwritten) {
  Net net({1, 16, 6, 6});
  const std::string a = net.conv("x", 16, 16, 3);
  const std::string q = net.quantize(a);
  const std::string sum = net.op("Add", {a, q});
  net.check({net.quantize(sum), net.op("Mul", {sum, q}), net.quantize(net.op("Add", {q, q}))});
}

TEST(FakeQuantizePlan, PoolsAndMovementsStayBlocked) {
  Net net({2, 6, 8, 8});
  const std::string a = net.quantize(net.conv("x", 6, 24, 3));
  const std::string pooled = net.op(
      "MaxPool", {a}, {{"kernel_shape", std::vector<int64_t>{2, 2}, {}}, {"strides", std::vector<int64_t>{2, 2}, {}}});
  const std::string ends = net.constant(Tensor::of<int64_t>({1}, std::vector<int64_t>{12}));
  const std::string starts = net.constant(Tensor::of<int64_t>({1}, std::vector<int64_t>{3}));
  const std::string axes = net.constant(Tensor::of<int64_t>({1}, std::vector<int64_t>{1}));
  const std::string part = net.op("Slice", {net.quantize(pooled), starts, ends, axes});
  const std::string pads = net.constant(Tensor::of<int64_t>({8}, std::vector<int64_t>{0, 1, 0, 2, 0, 0, 1, 0}));
  const std::string padded = net.op("Pad", {net.quantize(part, {.format = "int4"}, 8, 1), pads});
  const std::string turned = net.op("Transpose", {padded}, {{"perm", std::vector<int64_t>{0, 2, 3, 1}, {}}});
  net.check({net.conv(padded, 10, 16, 3), turned});
}

TEST(FakeQuantizePlan, EveryGranularityAndFormat) {
  const std::vector<TensorSpec> specs{
      {.format = "uint8", .symmetric = false},
      {.format = "int8"},
      {.format = "fp8_e4m3", .granularity = Granularity::PerToken},
      {.format = "int8", .granularity = Granularity::PerChannel, .axis = 1},
      {.format = "uint4", .granularity = Granularity::PerGroup, .axis = -1, .group_size = 3, .symmetric = false},
      {.format = "int8", .granularity = Granularity::PerBlock, .group_size = 4},
      {.format = "mxfp4", .axis = -1},
      {.format = "nvfp4", .axis = 1},
      {.format = "float16"},
      {.format = "bfloat16", .granularity = Granularity::PerToken},
      {.format = "int8", .rounding = Rounding::Stochastic},
  };
  for (const TensorSpec& spec : specs) {
    SCOPED_TRACE(spec.format + " " + std::string(enum_name(spec.granularity)));
    Net net({8, 6, 64, 64});  // large enough to be run in slices where samples stay apart
    const std::string a = net.quantize(net.conv("x", 6, 21, 3), spec);
    const std::string order = net.op("Transpose", {a}, {{"perm", std::vector<int64_t>{0, 2, 3, 1}, {}}});
    net.check({net.quantize(order, spec), net.op("Relu", {a})});
  }
}

TEST(FakeQuantizePlan, GivenScalesForEachChannel) {
  Net net({8, 3, 64, 64});
  const TensorSpec spec{.format = "int8", .granularity = Granularity::PerChannel, .axis = 1};
  const std::string scales = net.constant(Tensor::of<float>({3}, std::vector<float>{0.5F, 0.25F, 2}));
  net.check({net.op("Relu", {net.place(make_fake_quantize(spec, net.conv("x", 3, 3, 1), "", scales))})});
}

TEST(FakeQuantizePlan, AScaleThatIsAnInput) {
  Node node = make_fake_quantize({.format = "int8"}, "x", "y", "s");
  Engine engine(make_model({node}, {}, {make_value("x", {3}), make_value("s", {})}, {"y"}));
  const Tensor x = Tensor::of<float>({3}, std::vector<float>{1.2F, -0.3F, 1000});
  const auto run = [&](float scale) { return engine.run({{"x", x}, {"s", Tensor::scalar(scale)}})[0].to_float(); };
  EXPECT_EQ(run(0.5F), (std::vector<float>{1, -0.5F, 63.5F}));
  EXPECT_EQ(run(2), (std::vector<float>{2, 0, 254}));
}

TEST(FakeQuantizePlan, KeepsWhatIsFusedBeforeIt) {
  // x -> Conv -> Relu -> FakeQuantize -> Add (x) -> Clip -> FakeQuantize
  const std::vector<Node> nodes{
      make_node("Conv", {}, {}),
      make_node("Relu", {}, {}),
      make_fake_quantize({.format = "uint8"}, "", "", "s"),
      make_node("Add", {}, {}),
      make_node("Clip", {}, {}, {{"min", 0.0F, {}}, {"max", 6.0F, {}}}),
      make_fake_quantize({.format = "uint8"}, "", "", "s"),
  };
  PlanGraph graph;
  const int32_t x = graph.add_value({{1, 4, 5, 5}, DType::Float32, false, {}});
  const int32_t w = graph.add_constant(at::ones({4, 4, 1, 1}));
  const int32_t scale = graph.add_constant(at::full({}, 0.1));
  int32_t value = x;
  for (const Node& node : nodes) {
    PlanOp op;
    op.position = graph.ops.size();
    op.node = &node;
    op.inputs = {value};
    if (node.op == "Conv") op.inputs.push_back(w);
    if (node.op == "Add") op.inputs.push_back(x);
    if (node.op == "FakeQuantize") op.inputs.push_back(scale);
    value = graph.add_value(graph.facts(x));
    op.outputs = {value};
    graph.ops.push_back(op);
  }
  fuse(graph);
  ASSERT_EQ(graph.ops.size(), 2U);
  EXPECT_TRUE(graph.ops[0].is("Conv"));
  ASSERT_EQ(graph.ops[0].post.size(), 4U);
  EXPECT_EQ(graph.ops[0].post[0].alpha, 10);
  EXPECT_EQ(graph.ops[0].post[1].algorithm, dnnl::algorithm::eltwise_round);
  EXPECT_EQ(graph.ops[0].post[2].alpha, 0);
  EXPECT_EQ(graph.ops[0].post[2].beta, 255);
  EXPECT_EQ(graph.scalar(graph.ops[0].post[3].operand), 0.1F);
  EXPECT_TRUE(graph.ops[1].is("Add"));
  EXPECT_EQ(graph.ops[1].post.size(), 1U);
  EXPECT_NE(graph.ops[1].quantizer, nullptr);
  EXPECT_EQ(graph.ops[1].outputs, Ids{value});
}

/// Brings them into row-major order, samples from `first` on.
void place(const Pixels& pixels, int64_t first, std::vector<float>& to) {
  const int64_t channels = pixels.shape[1];
  const int64_t positions = element_count(pixels.shape) / pixels.shape[0] / channels;
  for (int64_t i = 0; i < element_count(pixels.shape); ++i) {
    const int64_t sample = i / positions / channels, channel = i / positions % channels;
    to.at(static_cast<size_t>(first * channels * positions + i)) =
        pixels.data[sample * pixels.sample_stride + channel / pixels.block * pixels.block_stride +
                    channel % pixels.block + i % positions * pixels.position_stride];
  }
}

/// Every value of a net, as watchers see it and as hooks do.
void check_watched(const Net& net, const TensorMap& inputs, const std::vector<std::string>& values,
                   const std::string& output) {
  Engine engine(net.model({output}));
  std::map<std::string, std::vector<float>> wanted, seen, in_order;
  Hooks hooks, watchers, tensor_watchers;
  for (const std::string& value : values) {
    hooks.add(value, [&](const std::string& name, const Tensor& tensor) -> std::optional<Tensor> {
      wanted[name] = tensor.to_float();
      return std::nullopt;
    });
    watchers.watch(value, [&](const std::string& name, std::span<const float> elements) {
      seen[name].insert(seen[name].end(), elements.begin(), elements.end());
    });
    tensor_watchers.watch_tensor(value, [&](const Shown& shown) {
      std::vector<float>& all = in_order[shown.value];
      if (shown.count > 0) {
        EXPECT_EQ(shown.tensor.shape()[0], shown.count);
        EXPECT_EQ(std::ssize(all), shown.tensor.size() / shown.count * shown.first);
      }
      const std::span<const float> elements = shown.tensor.as<float>();
      all.insert(all.end(), elements.begin(), elements.end());
    });
  }
  const std::vector<float> bare = engine.run(inputs)[0].to_float();
  engine.run(inputs, hooks);
  EXPECT_EQ(engine.run(inputs, watchers)[0].to_float(), bare);
  EXPECT_EQ(engine.run(inputs, tensor_watchers)[0].to_float(), bare);
  EXPECT_EQ(in_order, wanted);
  ASSERT_EQ(seen.size(), values.size());
  for (const std::string& value : values) {
    std::sort(wanted[value].begin(), wanted[value].end());
    std::sort(seen[value].begin(), seen[value].end());
    EXPECT_EQ(seen[value], wanted[value]) << value;
  }
  // All at once may hide what one alone would lose.
  for (const std::string& value : values) {
    seen.clear();
    Hooks one;
    one.watch(value, [&](const std::string& name, std::span<const float> elements) {
      seen[name].insert(seen[name].end(), elements.begin(), elements.end());
    });
    EXPECT_EQ(engine.run(inputs, one)[0].to_float(), bare) << value;
    EXPECT_EQ(seen[value].size(), wanted[value].size()) << value;
    Hooks tensor;
    std::vector<float> alone;
    tensor.watch_tensor(value, [&](const Shown& shown) {
      const std::vector<float> part = shown.tensor.to_float();
      alone.insert(alone.end(), part.begin(), part.end());
    });
    EXPECT_EQ(engine.run(inputs, tensor)[0].to_float(), bare) << value;
    EXPECT_EQ(alone, in_order[value]) << value;
    Hooks pixel;
    std::vector<float> placed(alone.size(), std::nanf(""));
    pixel.watch_tensor(value, PixelWatcher{[&](const Pixels& pixels, int64_t first) { place(pixels, first, placed); }});
    EXPECT_EQ(engine.run(inputs, pixel)[0].to_float(), bare) << value;
    EXPECT_EQ(placed, in_order[value]) << value;
  }
}

TEST(Watchers, SeeEveryElementOnceInAnyLayout) {
  for (const int64_t batch : {1, 8}) {
    for (const int64_t channels : {16, 21, 32}) {
      SCOPED_TRACE(fmt::format("{} channels, batch {}", channels, batch));
      const Shape shape{batch, 3, 64, 48};
      Net net(shape);
      std::vector<float> x = net.random(shape, 3).to_float();
      for (float& value : x) value = std::round(value);
      const std::string a = net.op("Relu", {net.conv("x", 3, channels, 3)});
      const std::string b = net.conv(a, channels, channels, 3);
      const std::string sum = net.op("Add", {a, b});
      const std::string turned = net.op("Transpose", {sum}, {{"perm", std::vector<int64_t>{0, 2, 3, 1}, {}}});
      const std::string quantized = net.quantize(turned);
      check_watched(net, {{"x", Tensor::of(shape, x)}}, {"x", a, b, sum, turned, quantized}, quantized);
    }
  }
}

/// conv + Relu -> a -> conv + Relu, with or without a watcher on a.
std::vector<PlanOp> fused_chain(bool watched) {
  const Node conv = make_node("Conv", {"x", "w"}, {"y"});
  const Node relu = make_node("Relu", {"x"}, {"y"});
  PlanGraph graph;
  ValueFacts facts;
  facts.shape = {1, 4, 8, 8};
  facts.type = DType::Float32;
  int32_t value = graph.add_value(facts);
  const int32_t weights = graph.add_constant(at::ones({4, 4, 1, 1}));
  const auto append = [&](PlanOp op) {
    op.position = graph.ops.size();
    graph.ops.push_back(std::move(op));
  };
  for (int layer = 0; layer < 2; ++layer) {
    for (const Node* node : {&conv, &relu}) {
      const int32_t next = graph.add_value(facts);
      append({.node = node, .inputs = node == &conv ? Ids{value, weights} : Ids{value}, .outputs = {next}});
      value = next;
    }
    if (watched && layer == 0) append({.hook = 0, .hook_value = value, .inputs = {value}});
  }
  graph.is_output[static_cast<size_t>(value)] = true;
  fuse(graph);
  return graph.ops;
}

TEST(Watchers, LeaveWhatIsAroundThemFused) {
  const std::vector<PlanOp> bare = fused_chain(false);
  const std::vector<PlanOp> watched = fused_chain(true);
  ASSERT_EQ(bare.size(), 2U);
  ASSERT_EQ(watched.size(), 3U);
  EXPECT_TRUE(watched[1].is_watcher());
  for (const PlanOp* op : {&bare[0], &bare[1], &watched[0], &watched[2]}) {
    ASSERT_EQ(op->post.size(), 1U);
    EXPECT_EQ(op->post[0].algorithm, dnnl::algorithm::eltwise_relu);
  }
}

/// What they are for: the layout that a convolution chose is shown as it is.
TEST(Watchers, OfPixelsNeedNoOtherLayout) {
  Net net({2, 16, 24, 24});
  const std::string a = net.op("Relu", {net.conv("x", 16, 32, 3)});
  Engine engine(net.model({net.conv(a, 32, 32, 3)}));
  const TensorMap inputs{{"x", net.random({2, 16, 24, 24}, 3)}};
  int64_t block = 0;
  Hooks hooks;
  hooks.watch_tensor(a, PixelWatcher{[&](const Pixels& pixels, int64_t) { block = pixels.block; }});
  engine.run(inputs, hooks);
  EXPECT_GT(block, 1);
}

TEST(Watchers, OfTensorsTakeAnyType) {
  Engine engine(make_model({make_node("Shape", {"x"}, {"s"}), make_node("Neg", {"x"}, {"y"}),
                            make_node("Cast", {"y"}, {"i"}, {{"to", static_cast<int64_t>(DType::Int32), {}}})},
                           {}, {make_value("x", {2})}, {"y", "s", "i"}));
  std::map<std::string, std::vector<int64_t>> seen;
  Hooks hooks;
  for (const char* value : {"s", "i"}) {
    hooks.watch_tensor(value, [&](const Shown& shown) { seen[shown.value] = shown.tensor.to_int64(); });
  }
  engine.run({{"x", Tensor::of<float>({2}, std::vector<float>{1, 2})}}, hooks);
  EXPECT_EQ(seen["s"], (std::vector<int64_t>{2}));
  EXPECT_EQ(seen["i"], (std::vector<int64_t>{-1, -2}));
}

TEST(Watchers, ALargeBatchComesInSlices) {
  Net net({16, 3, 64, 64});
  const std::string a = net.conv("x", 3, 16, 3);
  Engine engine(net.model({net.op("Relu", {a})}));
  int calls = 0;
  size_t elements = 0;
  Hooks hooks;
  hooks.watch(a, [&](const std::string&, std::span<const float> part) {
    ++calls;
    elements += part.size();
  });
  engine.run({{"x", net.random({16, 3, 64, 64})}}, hooks);
  EXPECT_EQ(elements, size_t{16 * 16 * 64 * 64});
  EXPECT_GT(calls, 1);
}

TEST(Watchers, AConstantIsSeenOnceAndStaysConstant) {
  Net net({16, 3, 64, 64});
  const std::string table = net.constant(Tensor::of<float>({2}, std::vector<float>{1, 2}));
  const std::string other = net.op("Neg", {table});
  Engine engine(net.model({net.op("Relu", {net.conv("x", 3, 16, 3)}), other}));
  std::vector<float> seen;
  Hooks hooks;
  for (const Edge& edge : {Edge{table}, Edge{table, other, 0}, Edge{other}}) {
    hooks.watch(edge, [&](const std::string&, std::span<const float> part) {
      seen.insert(seen.end(), part.begin(), part.end());
    });
  }
  engine.run({{"x", net.random({16, 3, 64, 64})}}, hooks);
  EXPECT_EQ(seen, (std::vector<float>{1, 2, 1, 2, -1, -2}));
}

TEST(Watchers, AnEdgeAndAHookBeforeIt) {
  const Model model = make_model({make_node("Neg", {"x"}, {"a"}), make_node("Add", {"a", "x"}, {"y"})}, {},
                                 {make_value("x", {2})}, {"y"});
  Engine engine(model);
  std::vector<float> seen;
  const Watcher note = [&](const std::string&, std::span<const float> part) {
    seen.insert(seen.end(), part.begin(), part.end());
  };
  Hooks hooks;
  hooks.watch("a", note);
  hooks.add("a", [](const std::string&, const Tensor&) -> std::optional<Tensor> {
    return Tensor::of<float>({2}, std::vector<float>{5, 6});
  });
  hooks.watch(Edge{"a", "y", 0}, note);
  const TensorMap inputs{{"x", Tensor::of<float>({2}, std::vector<float>{1, 2})}};
  EXPECT_EQ(engine.run(inputs, hooks)[0].to_float(), (std::vector<float>{6, 8}));
  EXPECT_EQ(seen, (std::vector<float>{-1, -2, 5, 6}));
}

TEST(Watchers, SeeInterpretedRunsToo) {
  const Model model = make_model({make_node("NonZero", {"x"}, {"i"}), make_node("Neg", {"x"}, {"y"})}, {},
                                 {make_value("x", {2})}, {"y", "i"});
  Engine engine(model);
  std::vector<float> seen;
  Hooks hooks;
  hooks.watch("y", [&](const std::string&, std::span<const float> part) { seen.assign(part.begin(), part.end()); });
  engine.run({{"x", Tensor::of<float>({2}, std::vector<float>{1, 2})}}, hooks);
  EXPECT_EQ(seen, (std::vector<float>{-1, -2}));
}

TEST(Watchers, TakeFloatsAlone) {
  const Model model = make_model({make_node("Shape", {"x"}, {"s"}), make_node("Neg", {"x"}, {"y"})}, {},
                                 {make_value("x", {2})}, {"y", "s"});
  Engine engine(model);
  Hooks hooks;
  hooks.watch("s", [](const std::string&, std::span<const float>) {});
  const TensorMap inputs{{"x", Tensor::of<float>({2}, std::vector<float>{1, 2})}};
  EXPECT_NE(error_of(ErrorCode::InvalidInput, [&] { engine.run(inputs, hooks); }).find("float32"), std::string::npos);
}

}  // namespace
}  // namespace kaon
