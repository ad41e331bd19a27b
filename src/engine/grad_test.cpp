#include "engine/grad.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/engine.h"

namespace kaon {
namespace {

/// y = softmax-free two-layer net: relu(x·a + b)·c
Model small_net() {
  Model model;
  model.opsets[""] = 13;
  Graph& graph = model.graph;
  graph.inputs = {{.name = "x"}};
  graph.outputs = {{.name = "y"}};
  graph.initializers = {
      {"a", Tensor::of<float>({2, 3}, std::vector<float>{0.1F, -0.2F, 0.3F, 0.4F, 0.5F, -0.6F}), {}, {}},
      {"b", Tensor::of<float>({3}, std::vector<float>{0.01F, 0.02F, 0.03F}), {}, {}},
      {"c", Tensor::of<float>({3, 1}, std::vector<float>{1, -1, 2}), {}, {}}};
  graph.nodes = {{.name = "h", .op = "Gemm", .inputs = {"x", "a", "b"}, .outputs = {"h"}},
                 {.name = "r", .op = "Relu", .inputs = {"h"}, .outputs = {"r"}},
                 {.name = "y", .op = "MatMul", .inputs = {"r", "c"}, .outputs = {"y"}}};
  return model;
}

TEST(Grad, GradientsMatchFiniteDifferences) {
  GradModel net(small_net());
  EXPECT_EQ(net.parameters().size(), 3U);
  const at::Tensor x = at::tensor({1.0F, 2.0F, -1.5F, 0.5F}).reshape({2, 2});
  const auto loss = [&] { return net.forward({{"x", x}})[0].pow(2).sum(); };
  loss().backward();
  for (auto& [name, parameter] : net.parameters()) {
    const at::Tensor gradient = parameter.grad().flatten();
    for (int64_t i = 0; i < parameter.numel(); ++i) {
      const float step = 1e-2F;
      const auto moved = [&](float by) {
        const at::NoGradGuard guard;
        parameter.flatten()[i] += by;
        const double value = loss().item<double>();
        parameter.flatten()[i] -= by;
        return value;
      };
      const double expected = (moved(step) - moved(-step)) / (2 * step);
      EXPECT_NEAR(gradient[i].item<double>(), expected, 2e-3) << name << "[" << i << "]";
    }
  }
}

TEST(Grad, TrainingLowersTheLossAndTheTrainedModelRunsInTheEngine) {
  GradModel net(small_net(), {"c"});
  EXPECT_FALSE(net.parameters().contains("c"));
  const at::Tensor x = at::tensor({1.0F, 2.0F, -1.5F, 0.5F}).reshape({2, 2});
  const at::Tensor wanted = at::tensor({1.0F, -1.0F}).reshape({2, 1});
  const auto loss = [&] { return (net.forward({{"x", x}})[0] - wanted).pow(2).mean(); };
  const double before = loss().item<double>();
  for (int i = 0; i < 100; ++i) {
    const at::Tensor value = loss();
    value.backward();
    const at::NoGradGuard guard;
    for (auto& [name, parameter] : net.parameters()) {
      parameter.sub_(parameter.grad(), 0.05);
      parameter.mutable_grad().zero_();
    }
  }
  const at::Tensor after = net.forward({{"x", x}})[0].detach();
  EXPECT_LT(loss().item<double>(), before / 10);
  Engine engine(net.trained());
  const std::vector<float> input(x.data_ptr<float>(), x.data_ptr<float>() + 4);
  const Tensor y = engine.run({{"x", Tensor::of<float>({2, 2}, input)}})[0];
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(y.as<float>()[i], after.data_ptr<float>()[i], 1e-5F);
}

TEST(Grad, BadInputsAreNamed) {
  const GradModel net(small_net());
  EXPECT_THROW(net.forward({}), Error);
  EXPECT_THROW(net.forward({{"z", at::zeros({1, 2})}}), Error);
}

}  // namespace
}  // namespace kaon
