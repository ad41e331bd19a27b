#include "nn/builder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/engine.h"
#include "graph/build_test.h"
#include "graph/verify.h"
#include "nn/models.h"
#include "numerics/random.h"

namespace kaon::nn {
namespace {

std::vector<std::string> names_of(const Graph& graph) {
  std::vector<std::string> names;
  for (const Initializer& initializer : graph.initializers) names.push_back(initializer.name);
  return names;
}

Tensor run(const Model& model, const Tensor& input) { return Engine(model).run({{"input", input}})[0]; }

void set(Model& model, const std::string& name, const Shape& shape, const std::vector<float>& values) {
  model.graph.find_initializer(name)->tensor = Tensor::of<float>(shape, values);
}

TEST(Network, ParametersAreNamedAsInPyTorch) {
  Network net({1, 4, 4});
  net.conv("conv1", 2, {.padding = 1, .bias = false}).batch_norm("bn1").relu();
  net.residual("layer1.0", [](Network& block) { block.conv("conv1", 2, {.padding = 1}).relu(); });
  net.flatten().linear("fc", 3);
  const Model model = net.model();
  EXPECT_EQ(names_of(model.graph),
            (std::vector<std::string>{"conv1.weight", "bn1.weight", "bn1.bias", "bn1.running_mean", "bn1.running_var",
                                      "layer1.0.conv1.weight", "layer1.0.conv1.bias", "fc.weight", "fc.bias"}));
  EXPECT_EQ(model.graph.nodes[0].name, "/conv1/Conv");
  EXPECT_EQ(model.graph.nodes[3].name, "/layer1/0/conv1/Conv");
  EXPECT_EQ(model.graph.outputs[0].shape->at(1).value, 3);
}

TEST(Network, ComputesWhatItSays) {
  Network net({2});
  net.normalize(1, 2).linear("a", 2).relu6().linear("b", 1);
  Model model = net.model();
  set(model, "a.weight", {2, 2}, {1, 0, 0, -1});
  set(model, "a.bias", {2}, {0, 10});
  set(model, "b.weight", {1, 2}, {1, 100});
  set(model, "b.bias", {1}, {0.5F});
  // (5 − 1) / 2 = 2; 10 − (3 − 1) / 2 = 9, which is cut to 6.
  EXPECT_EQ(run(model, Tensor::of<float>({1, 2}, std::vector<float>{5, 3})).to_float(), (std::vector<float>{602.5F}));
}

TEST(Network, AResidualBlockAddsItsInput) {
  Network net({1, 2, 2});
  net.residual("r", [](Network& block) { block.conv("c", 1, {.kernel = 1}); });
  Model model = net.model();
  set(model, "r.c.weight", {1, 1, 1, 1}, {10});
  set(model, "r.c.bias", {1}, {1});
  EXPECT_EQ(run(model, Tensor::of<float>({1, 1, 2, 2}, std::vector<float>{1, 2, 3, 4})).to_float(),
            (std::vector<float>{12, 23, 34, 45}));
}

TEST(Network, ShapesFollowTheWindows) {
  Network net({3, 9, 7});
  net.conv("c", 6, {.kernel = 3, .stride = 2, .padding = 1, .groups = 3});
  EXPECT_EQ(net.shape(), (Shape{6, 5, 4}));
  net.max_pool();
  EXPECT_EQ(net.shape(), (Shape{6, 2, 2}));
  const Model model = net.model();
  const Tensor y = run(model, Tensor::of<float>({2, 3, 9, 7}, std::vector<float>(2 * 3 * 9 * 7, 0.5F)));
  EXPECT_EQ(y.shape(), (Shape{2, 6, 2, 2}));
}

TEST(Network, ParametersStartUniformWithinOneOverTheRootOfTheFanIn) {
  Network net({1, 28, 28}, 3);
  net.flatten().linear("fc", 512);
  const Model model = net.model();
  const auto weight = model.graph.find_initializer("fc.weight")->tensor.as<float>();
  const float bound = 1.0F / 28;
  double sum = 0, squares = 0;
  for (const float value : weight) {
    ASSERT_LE(std::abs(value), bound);
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  const auto count = static_cast<double>(weight.size());
  // 400,000 draws: the mean's deviation is 3e-5, the variance is known to 0.2 %.
  EXPECT_NEAR(sum / count, 0, 1.5e-4);
  EXPECT_NEAR(squares / count, bound * bound / 3, 0.01 * bound * bound / 3);
}

TEST(Network, TheSeedAloneDecides) {
  const auto first_weight = [](uint64_t seed) {
    Network net({4}, seed);
    return net.linear("fc", 4).model().graph.find_initializer("fc.weight")->tensor.to_float();
  };
  EXPECT_EQ(first_weight(5), first_weight(5));
  EXPECT_NE(first_weight(5), first_weight(6));
  // The same everywhere.
  EXPECT_EQ(first_weight(0)[0], (2 * random_unit(0, 0) - 1) / 2);
}

TEST(Network, WhatDoesNotFitIsNamed) {
  const auto refused = [](const std::function<void()>& action, const std::string& part) {
    EXPECT_NE(error_of(ErrorCode::InvalidConfig, action).find(part), std::string::npos) << part;
  };
  refused([] { Network({1, 4, 4}).linear("fc", 3); }, "fc: takes samples of one axis (see flatten)");
  refused([] { Network({4}).conv("c", 3); }, "c: takes samples of the axes channels, height and width");
  refused([] { Network({3, 4, 4}).conv("c", 4, {.groups = 2}); }, "2 groups do not divide 3 input and 4 output");
  refused([] { Network({1, 2, 2}).conv("c", 1); }, "do not fit a side of 2");
  refused([] { Network({4}).linear("fc", 4).linear("fc", 4); }, "fc.weight: a second parameter");
  refused([] { Network({4}).linear("fc", 0); }, "0 outputs");
  refused([] { Network({4}).normalize(0, 0); }, "not above 0");
  refused([] { Network({4}).residual("r", [](Network& block) { block.linear("fc", 3); }); }, "the body gives [3]");
  refused([] { Network({4}).model(); }, "no layers");
}

TEST(Models, AreSoundAndTellTenClassesApart) {
  for (const auto& [name, make] : models().items()) {
    const Model model = make(0);
    verify(model);
    const Tensor y = run(model, Tensor::of<float>({3, 1, 28, 28}, std::vector<float>(3 * 784, 0.5F)));
    EXPECT_EQ(y.shape(), (Shape{3, 10})) << name;
  }
  EXPECT_EQ(models().names(), (std::vector<std::string>{"mlp", "cnn", "mobilenet"}));
}

}  // namespace
}  // namespace kaon::nn
