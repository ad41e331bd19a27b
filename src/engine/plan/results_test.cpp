// What a run returns is the caller's: later runs leave it alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/engine.h"
#include "graph/build_test.h"

namespace kaon {
namespace {

constexpr int64_t kRows = 600, kTerms = 16, kColumns = 1000;  // more than a MiB of results

Tensor numbers(Shape shape, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(element_count(shape)));
  for (float& value : values) value = normal(generator);
  return Tensor::of(std::move(shape), values);
}

Initializer weights() { return {"w", numbers({kTerms, kColumns}, 1), {}, {}}; }

void expect_kept(Engine engine) {
  const auto inputs = [](uint32_t seed) { return TensorMap{{"x", numbers({kRows, kTerms}, seed)}}; };
  const auto exact = [&](uint32_t seed) {
    Frame frame = engine.start(inputs(seed));
    frame.finish();
    return frame.outputs();
  };
  std::vector<std::vector<Tensor>> found;
  for (uint32_t seed = 0; seed < 3; ++seed) found.push_back(engine.run(inputs(seed)));
  for (uint32_t seed = 0; seed < 3; ++seed) {
    const std::vector<Tensor> expected = exact(seed);
    ASSERT_EQ(found[seed].size(), expected.size());
    for (size_t k = 0; k < expected.size(); ++k) {
      ASSERT_EQ(found[seed][k].shape(), expected[k].shape());
      for (size_t i = 0; i < expected[k].as<float>().size(); i += 7) {
        ASSERT_NEAR(found[seed][k].as<float>()[i], expected[k].as<float>()[i], 1e-4) << seed << " " << k << " " << i;
      }
    }
  }
}

TEST(Results, OfOneProduct) {
  expect_kept(Engine(
      make_model({make_node("MatMul", {"x", "w"}, {"y"})}, {weights()}, {make_value("x", {kRows, kTerms})}, {"y"})));
}

TEST(Results, UnderAnotherShapeAndTwice) {
  const Initializer shape{"s", Tensor::of<int64_t>({1}, std::vector<int64_t>{-1}), {}, {}};
  const std::vector<Node> nodes{make_node("MatMul", {"x", "w"}, {"y"}), make_node("Reshape", {"y", "s"}, {"z"})};
  for (const std::vector<std::string>& outputs : {std::vector<std::string>{"z"}, {"y", "z"}, {"y", "y"}}) {
    expect_kept(Engine(make_model(nodes, {weights(), shape}, {make_value("x", {kRows, kTerms})}, outputs)));
  }
}

TEST(Results, ThatOthersReadOrWriteInPlace) {
  const std::vector<Node> nodes{make_node("MatMul", {"x", "w"}, {"y"}), make_node("Neg", {"y"}, {"n"}),
                                make_node("Sin", {"y"}, {"r"}), make_node("Identity", {"r"}, {"i"})};
  for (const std::vector<std::string>& outputs : {std::vector<std::string>{"n"}, {"y", "n"}, {"y", "r"}, {"i", "y"}}) {
    expect_kept(Engine(make_model(nodes, {weights()}, {make_value("x", {kRows, kTerms})}, outputs)));
  }
}

}  // namespace
}  // namespace kaon
