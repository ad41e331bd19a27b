// Networks of integer operators: as constants their parameters let plans run on codes, as inputs they are interpreted.
#include "engine/integer_operators.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/engine.h"
#include "graph/build_test.h"

namespace kaon {
namespace {

class IntegerNet : public testing::Test {
 protected:
  template <typename T>
  Tensor codes(Shape shape, int least, int most) {
    std::uniform_int_distribution<int> any(least, most);
    std::vector<T> values(static_cast<size_t>(element_count(shape)));
    for (T& value : values) value = static_cast<T>(any(generator_));
    return Tensor::of<T>(std::move(shape), values);
  }
  std::string add(const std::string& name, Tensor tensor) {
    constants_.push_back({name, std::move(tensor), {}, {}});
    return name;
  }
  std::string scale(float value) {
    return add(fmt::format("s{}", constants_.size()), Tensor::of<float>({1}, std::vector<float>{value}));
  }
  template <typename T>
  std::string zero(T value) {
    return add(fmt::format("z{}", constants_.size()), Tensor::scalar(value));
  }
  std::string conv(const std::string& x, int64_t in, int64_t out) {
    std::vector<float> scales(static_cast<size_t>(out));
    for (size_t i = 0; i < scales.size(); ++i) scales[i] = 0.004F + 0.0003F * static_cast<float>(i);
    const auto name = [&](const char* what) { return fmt::format("{}{}", what, constants_.size()); };
    const std::string w = add(name("w"), codes<int8_t>({out, in, 3, 3}, -127, 127));
    const std::string w_scale = add(name("ws"), Tensor::of<float>({out}, scales));
    const std::string w_zero = add(name("wz"), Tensor::of<int8_t>({out}, std::vector<int8_t>(scales.size())));
    const std::string b = add(name("b"), codes<int32_t>({out}, -3000, 3000));
    const std::string y = fmt::format("y{}", nodes_.size());
    nodes_.push_back(make_node(
        "QLinearConv", {x, scale(0.02F), zero<uint8_t>(3), w, w_scale, w_zero, scale(0.11F), zero<uint8_t>(120), b},
        {y}, {{"pads", std::vector<int64_t>(4, 1), {}}}));
    return y;
  }

  /// Constants as such, or as inputs that a run is given.
  std::vector<Tensor> run(const Tensor& x, const std::string& output, bool constant) {
    std::vector<ValueInfo> inputs{make_value("x", x.shape(), DType::UInt8)};
    TensorMap given{{"x", x}};
    if (!constant) {
      for (const Initializer& one : constants_) {
        inputs.push_back(make_value(one.name, one.tensor.shape(), one.tensor.type()));
        given.emplace(one.name, one.tensor);
      }
    }
    Model model = make_model(nodes_, constant ? constants_ : std::vector<Initializer>{}, inputs, {output}, 13);
    model.opsets["com.microsoft"] = 1;
    return Engine(std::move(model)).run(given);
  }

  std::mt19937 generator_{5};
  std::vector<Node> nodes_;
  std::vector<Initializer> constants_;
};

TEST_F(IntegerNet, CodesAreThoseOfExactSumsButForTies) {
  const std::string a = conv("x", 8, 16);
  const std::string b = conv(a, 16, 16);
  Node sum = make_node(
      "QLinearAdd",
      {a, scale(0.11F), zero<uint8_t>(120), b, scale(0.12F), zero<uint8_t>(118), scale(0.2F), zero<uint8_t>(110)},
      {"sum"});
  sum.domain = "com.microsoft";
  nodes_.push_back(sum);
  const std::string y = conv("sum", 16, 8);
  const Tensor x = codes<uint8_t>({1, 8, 12, 12}, 0, 255);
  const std::vector<int64_t> quick = run(x, y, true)[0].to_int64();
  const std::vector<int64_t> exact = run(x, y, false)[0].to_int64();
  ASSERT_EQ(quick.size(), exact.size());
  int64_t others = 0, inside = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    EXPECT_LE(std::abs(quick[i] - exact[i]), 1) << i;
    others += quick[i] != exact[i] ? 1 : 0;
    inside += exact[i] > 0 && exact[i] < 255 ? 1 : 0;
  }
  EXPECT_LE(others, 5);
  EXPECT_GE(inside, 200);  // else everything is clipped, and nothing is compared
}

TEST_F(IntegerNet, ProductsAreThoseOfExactSumsButForTies) {
  constexpr int64_t kDeep = 96, kWide = 40;
  const auto scales = [&](const char* name) {
    std::vector<float> values(kWide);
    for (size_t i = 0; i < values.size(); ++i) values[i] = 0.004F + 0.0003F * static_cast<float>(i);
    return add(name, Tensor::of<float>({kWide}, values));
  };
  const std::string zeros = add("wz", Tensor::of<int8_t>({kWide}, std::vector<int8_t>(kWide)));
  nodes_ = {make_node("QLinearMatMul",
                      {"x", scale(0.02F), zero<uint8_t>(130), add("w", codes<int8_t>({kDeep, kWide}, -127, 127)),
                       scales("ws"), zeros, scale(0.05F), zero<uint8_t>(120)},
                      {"mid"}),
            make_node("QGemm",
                      {"mid", scale(0.05F), zero<uint8_t>(120), add("v", codes<int8_t>({kWide, kWide}, -127, 127)),
                       scale(0.006F), zero<int8_t>(2), add("c", codes<int32_t>({kWide}, -30000, 30000)), scale(0.4F),
                       zero<uint8_t>(125)},
                      {"low"}, {{"transB", int64_t{1}, {}}, {"alpha", 0.5F, {}}}),
            make_node("QGemm",
                      {"low", scale(0.4F), zero<uint8_t>(125), add("u", codes<int8_t>({kWide, 8}, -127, 127)),
                       scale(0.01F), zero<int8_t>(0)},
                      {"y"})};
  for (size_t i = 1; i < nodes_.size(); ++i) nodes_[i].domain = "com.microsoft";
  const Tensor x = codes<uint8_t>({24, kDeep}, 0, 255);
  int64_t others = 0, inside = 0;
  for (const char* output : {"mid", "low"}) {
    const std::vector<int64_t> quick = run(x, output, true)[0].to_int64();
    const std::vector<int64_t> exact = run(x, output, false)[0].to_int64();
    ASSERT_EQ(quick.size(), exact.size());
    for (size_t i = 0; i < exact.size(); ++i) {
      EXPECT_LE(std::abs(quick[i] - exact[i]), 1) << output << ' ' << i;
      others += quick[i] != exact[i] ? 1 : 0;
      inside += exact[i] > 0 && exact[i] < 255 ? 1 : 0;
    }
  }
  EXPECT_LE(others, 5);
  EXPECT_GE(inside, 1000);
  const std::vector<float> quick = run(x, "y", true)[0].to_float(), exact = run(x, "y", false)[0].to_float();
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(quick[i], exact[i], 0.6F) << i;  // one step of "low"
  Graph graph = make_model(nodes_, constants_, {make_value("x", x.shape(), DType::UInt8)}, {"y"}, 13).graph;
  unfold_integer_operators(graph);
  EXPECT_EQ(graph.nodes.size(), 4 + 4 + 3);
}

TEST_F(IntegerNet, NodesAreReplacedOnlyWhereParametersAreConstant) {
  const std::string y = conv("x", 8, 16);
  Model model = make_model(nodes_, constants_, {make_value("x", {1, 8, 4, 4}, DType::UInt8)}, {y}, 13);
  Graph open = model.graph;
  std::erase_if(open.initializers, [&](const Initializer& one) { return one.name == nodes_[0].inputs[6]; });
  unfold_integer_operators(open);
  EXPECT_EQ(open.nodes.size(), 1);
  unfold_integer_operators(model.graph);
  ASSERT_EQ(model.graph.nodes.size(), 4);
  EXPECT_EQ(model.graph.nodes[2].op, "Conv");
  EXPECT_EQ(model.graph.nodes[3].outputs, std::vector<std::string>{y});
}

}  // namespace
}  // namespace kaon
