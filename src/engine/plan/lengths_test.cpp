// An engine that has run other shapes gives what a fresh one does, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "engine/engine.h"
#include "graph/build_test.h"

namespace kaon {
namespace {

constexpr int64_t kWidth = 24;

class Graphs {
 public:
  std::string op(std::string kind, std::vector<std::string> inputs, std::vector<Attribute> attributes = {}) {
    const std::string output = fmt::format("v{}", nodes.size());
    nodes.push_back(make_node(std::move(kind), std::move(inputs), {output}, std::move(attributes)));
    return output;
  }
  std::string ints(const std::vector<int64_t>& values) {
    return constant(Tensor::of<int64_t>({std::ssize(values)}, values));
  }
  std::string random(Shape shape) {
    std::normal_distribution<float> normal(0, 0.15F);
    std::vector<float> values(static_cast<size_t>(element_count(shape)));
    for (float& value : values) value = normal(generator_);
    return constant(Tensor::of(std::move(shape), values));
  }
  std::string extent(const std::string& x, int64_t axis) {
    return op("Gather", {op("Shape", {x}), ints({axis})}, {{"axis", int64_t{0}, {}}});
  }

  /// A block of a decoder as exporters write it: every shape is computed from those of the values.
  std::string block(const std::string& x, int64_t heads, int64_t key_heads, float scale, const std::string& table) {
    const int64_t width = kWidth / heads;
    const std::string samples = extent(x, 0), length = extent(x, 1);
    const auto split = [&](int64_t count) {
      const std::string made = op("MatMul", {x, random({kWidth, count * width})});
      const std::string shape =
          op("Concat", {samples, length, ints({count}), ints({width})}, {{"axis", int64_t{0}, {}}});
      return op("Transpose", {op("Reshape", {made, shape})}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}, {}}});
    };
    const auto repeat = [&](const std::string& value) {
      const int64_t times = heads / key_heads;
      const auto shape = [&](const std::vector<std::string>& parts) {
        return op("Concat", parts, {{"axis", int64_t{0}, {}}});
      };
      const std::string wide =
          op("Expand", {op("Unsqueeze", {value, ints({2})}),
                        shape({samples, ints({key_heads}), ints({times}), length, ints({width})})});
      return op("Reshape", {wide, shape({samples, ints({heads}), length, ints({width})})});
    };
    const auto turned = [&](const std::string& value) {
      const std::string angle = op("Slice", {table, ints({0}), length, ints({0})});
      const std::string half = op("Slice", {value, ints({width / 2}), ints({width}), ints({3})});
      const std::string rest = op("Slice", {value, ints({0}), ints({width / 2}), ints({3})});
      const std::string swapped = op("Concat", {op("Neg", {half}), rest}, {{"axis", int64_t{3}, {}}});
      return op("Add", {op("Mul", {value, angle}), swapped});
    };
    const std::string q = turned(split(heads)), k = turned(split(key_heads)), v = split(key_heads);
    const std::string scores =
        op("MatMul", {q, op("Transpose", {repeat(k)}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}, {}}})});
    const std::string mask =
        op("Trilu",
           {op("Expand", {constant(Tensor::scalar(-9.0F)), op("Concat", {length, length}, {{"axis", int64_t{0}, {}}})}),
            constant(Tensor::scalar(int64_t{1}))});
    const std::string seen = op("Add", {op("Mul", {scores, constant(Tensor::scalar(scale))}), mask});
    const std::string mixed = op("MatMul", {op("Softmax", {seen}), repeat(v)});
    const std::string joined =
        op("Reshape", {op("Transpose", {mixed}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}, {}}}),
                       op("Concat", {samples, length, ints({-1})}, {{"axis", int64_t{0}, {}}})});
    const std::string sum = op("Add", {x, op("MatMul", {joined, random({kWidth, kWidth})})});
    const std::string gate = op("MatMul", {sum, random({kWidth, 2 * kWidth})});
    return op("Add", {sum, op("MatMul", {op("Mul", {gate, op("Sigmoid", {gate})}), random({2 * kWidth, kWidth})})});
  }

  std::string constant(Tensor tensor) {
    constants.push_back({fmt::format("c{}", constants.size()), std::move(tensor), {}, {}});
    return constants.back().name;
  }

  std::vector<Node> nodes;
  std::vector<Initializer> constants;

 private:
  std::mt19937 generator_{7};
};

Tensor numbers(Shape shape, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(element_count(shape)));
  for (float& value : values) value = normal(generator);
  return Tensor::of(std::move(shape), values);
}

/// `known` has seen other shapes; a fresh engine has not.
void expect_as_fresh(Engine& known, const Tensor& x) {
  const TensorMap inputs{{"x", x}};
  Engine fresh(known.model());
  const Tensor expected = fresh.run(inputs)[0];
  for (int run = 0; run < 2; ++run) {
    const Tensor found = known.run(inputs)[0];
    ASSERT_EQ(found.shape(), expected.shape()) << to_string(x.shape());
    ASSERT_TRUE(std::ranges::equal(found.bytes(), expected.bytes())) << to_string(x.shape()) << ", run " << run;
  }
  Frame frame = fresh.start(inputs);
  frame.finish();
  const std::vector<float> exact = frame.outputs()[0].to_float();
  double energy = 0, error = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    energy += static_cast<double>(exact[i]) * exact[i];
    error += std::pow(static_cast<double>(expected.as<float>()[i]) - exact[i], 2);
  }
  EXPECT_LE(error, 1e-10 * energy) << to_string(x.shape());
}

TEST(Lengths, ADecoderOfAnyLengthIsAsFresh) {
  Graphs net;
  // Blocks that are alike, and others that differ in one number: what one of them gives is not the other's.
  const std::string narrow = net.random({64, 4}), wide = net.random({64, 12});
  std::string x = net.block("x", 6, 2, 0.5F, narrow);
  x = net.block(x, 6, 2, 0.5F, narrow);
  x = net.block(x, 6, 3, 0.5F, narrow);
  x = net.block(x, 2, 2, 0.25F, wide);
  x = net.block(x, 6, 2, 0.125F, net.random({64, 4}));
  ValueInfo input = make_value("x", {1, 1, kWidth});
  (*input.shape)[0] = Dim{};
  (*input.shape)[1] = Dim{};
  Engine engine(make_model(net.nodes, net.constants, {input}, {x}, 17));
  // More than are kept, so that the first ones are made anew; two samples between them.
  for (int64_t i = 0; i < 24; ++i) expect_as_fresh(engine, numbers({1 + i % 5 / 4, 1 + i * 17 % 40, kWidth}, 100 + i));
  for (int64_t i = 0; i < 3; ++i) expect_as_fresh(engine, numbers({1, 1 + i * 17 % 40, kWidth}, 200 + i));
}

TEST(Lengths, WhatIsTheSameAtOneLengthIsNotAtOthers) {
  Graphs net;
  // At six tokens the first six are all of them, and the computed end is the constant one; up to eight tokens the
  // positions are few enough to be compared.
  const std::string length = net.extent("x", 1);
  const std::string first = net.op("Slice", {"x", net.ints({0}), net.ints({6}), net.ints({1})});
  const std::string all = net.op("Slice", {"x", net.ints({0}), length, net.ints({1})});
  const auto sum = [&](const std::string& value) {
    return net.op("ReduceSum", {net.op("Tanh", {value}), net.ints({1})});
  };
  const auto positions = [&](const std::string& end) {
    const std::string zero = net.constant(Tensor::scalar(int64_t{0})), one = net.constant(Tensor::scalar(int64_t{1}));
    const std::string range = net.op("Range", {zero, end, one});
    return net.op("Unsqueeze", {net.op("Cast", {range}, {{"to", int64_t{1}, {}}}), net.ints({1})});
  };
  const std::string tokens = net.op("Squeeze", {length, net.ints({0})});
  const std::string again = net.op("Add", {tokens, net.constant(Tensor::scalar(int64_t{0}))});
  std::string y = net.op("Add", {sum(first), sum(all)});
  for (const std::string& end : {tokens, again}) y = net.op("Add", {y, sum(net.op("Mul", {"x", positions(end)}))});
  ValueInfo input = make_value("x", {1, 1, kWidth});
  (*input.shape)[1] = Dim{};
  Engine engine(make_model(net.nodes, net.constants, {input}, {y}, 17));
  for (const int64_t tokens_now : {6, 9, 6, 1, 7, 20, 24, 3, 6}) {
    expect_as_fresh(engine, numbers({1, tokens_now, kWidth}, 400 + tokens_now));
  }
}

TEST(Lengths, ANetworkOfConvolutionsOfAnyBatchIsAsFresh) {
  Graphs net;
  const auto conv = [&](const std::string& x, int64_t in, int64_t out, int64_t stride) {
    return net.op("Conv", {x, net.random({out, in, 3, 3}), net.random({out})},
                  {{"kernel_shape", std::vector<int64_t>{3, 3}, {}},
                   {"pads", std::vector<int64_t>(4, 1), {}},
                   {"strides", std::vector<int64_t>{stride, stride}, {}}});
  };
  std::string x = net.op("Relu", {conv("x", 3, 16, 1)});
  for (int i = 0; i < 3; ++i) x = net.op("Relu", {net.op("Add", {x, conv(x, 16, 16, 1)})});
  x = net.op("Transpose", {conv(x, 16, 8, 2)}, {{"perm", std::vector<int64_t>{0, 2, 3, 1}, {}}});
  const std::string rows = net.op("Concat", {net.extent(x, 0), net.ints({-1})}, {{"axis", int64_t{0}, {}}});
  x = net.op("MatMul", {net.op("Reshape", {x, rows}), net.random({5 * 5 * 8, 10})});
  ValueInfo input = make_value("x", {1, 3, 9, 9});
  input.shape->front() = Dim{};
  Engine engine(make_model(net.nodes, net.constants, {input}, {x}, 17));
  for (const int64_t batch : {1, 4, 2, 7, 3, 1, 16, 5, 2})
    expect_as_fresh(engine, numbers({batch, 3, 9, 9}, 300 + batch));
}

}  // namespace
}  // namespace kaon
