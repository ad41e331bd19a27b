#include "graph/fake_quantize.h"

#include <ATen/ATen.h>

#include "engine/grad.h"
#include "engine/ops/single_op_test.h"
#include "graph/build_test.h"

namespace kaon {
namespace {

std::vector<float> run(const TensorSpec& spec, const Tensor& x, const Tensor& scale = {}, const Tensor& zero = {}) {
  Model model;
  model.opsets[""] = 17;
  std::vector<Tensor> inputs{x};
  if (scale.defined()) inputs.push_back(scale);
  if (zero.defined()) inputs.push_back(zero);
  const Node node = make_fake_quantize(spec, "x", "y", scale.defined() ? "s" : "", zero.defined() ? "z" : "");
  return evaluate_node(node, model, inputs)[0].to_float();
}

Tensor int32s(const Shape& shape, const std::vector<int32_t>& values) { return Tensor::of<int32_t>(shape, values); }

TEST(FakeQuantize, StaticPerTensor) {
  const Tensor x = floats({2, 3}, {0.24F, 0.26F, -3, 100, 0.75F, -0.75F});
  EXPECT_EQ(run({.format = "uint8"}, x, Tensor::scalar(0.5F), Tensor::scalar<int32_t>(4)),
            (std::vector<float>{0, 0.5F, -2, 100, 1, -1}));
  EXPECT_EQ(run({.format = "int4"}, x, Tensor::scalar(0.5F)), (std::vector<float>{0, 0.5F, -3, 3.5F, 1, -1}));
  // Any shape of one element is a scale for the whole tensor.
  EXPECT_EQ(run({.format = "int4"}, x, floats({1}, {0.5F})), (std::vector<float>{0, 0.5F, -3, 3.5F, 1, -1}));
}

TEST(FakeQuantize, StaticPerChannelAndPerGroup) {
  const Tensor x = floats({2, 3}, {0.3F, 0.3F, 0.3F, 7, 7, 7});
  EXPECT_EQ(run({.format = "int8", .granularity = Granularity::PerChannel, .axis = 1}, x, floats({3}, {1, 0.5F, 0.1F}),
                int32s({3}, {0, 0, -100})),
            (std::vector<float>{0, 0.5F, 3 * 0.1F, 7, 7, 70 * 0.1F}));
  EXPECT_EQ(run({.format = "int8", .granularity = Granularity::PerGroup, .axis = 1, .group_size = 2}, x,
                floats({2, 2}, {1, 0.5F, 2, 4})),
            (std::vector<float>{0, 0, 0.5F, 8, 8, 8}));
}

TEST(FakeQuantize, DynamicEqualsNumerics) {
  Tensor x = counting({4, 100});
  for (const TensorSpec& spec : {TensorSpec{.format = "uint8", .symmetric = false},
                                 TensorSpec{.format = "fp8_e4m3", .granularity = Granularity::PerToken},
                                 TensorSpec{.format = "mxfp4", .axis = 1}, TensorSpec{.format = "nvfp4", .axis = 0},
                                 TensorSpec{.format = "bfloat16"}}) {
    std::vector<float> expected = x.to_float();
    fake_quantize(expected, expected, x.shape(), spec);
    EXPECT_NE(expected, x.to_float()) << spec.format;
    EXPECT_EQ(run(spec, x), expected) << spec.format;
  }
}

TEST(FakeQuantize, BadInputsAreNamed) {
  const Tensor x = counting({2, 3});
  const auto message = [&](const TensorSpec& spec, const Tensor& in, const Tensor& scale, const Tensor& zero = {}) {
    return error_of(ErrorCode::InvalidInput, [&] { run(spec, in, scale, zero); });
  };
  EXPECT_NE(message({}, x, floats({2}, {1, 1})).find("scale"), std::string::npos);
  EXPECT_NE(message({}, x, floats({}, {-1})).find("scale"), std::string::npos);
  EXPECT_NE(message({}, longs({2}, {1, 2}), floats({}, {1})).find("float32"), std::string::npos);
  EXPECT_NE(message({}, x, floats({}, {1}), longs({}, {1})).find("int32"), std::string::npos);
  EXPECT_NE(message({}, x, floats({}, {1}), int32s({}, {300})).find("zero_point"), std::string::npos);
  EXPECT_NE(message({.granularity = Granularity::PerChannel, .axis = 5}, x, floats({2}, {1, 1})).find("axis"),
            std::string::npos);
  EXPECT_NE(error_of(ErrorCode::Unsupported, [&] { run({.format = "mxfp4"}, x, floats({}, {1})); }).find("scales"),
            std::string::npos);
}

/// Gradients of the sum of `weights`·FakeQuantize(x) for x and for the scale.
std::pair<std::vector<float>, std::vector<float>> gradients(const TensorSpec& spec, const Tensor& x,
                                                            const Tensor& scale, const Tensor& zero,
                                                            const Tensor& weights) {
  std::vector<Initializer> constants{{"x", x, {}, {}}, {"w", weights, {}, {}}};
  if (scale.defined()) constants.push_back({"s", scale, {}, {}});
  if (zero.defined()) constants.push_back({"z", zero, {}, {}});
  GradModel net(make_model({make_fake_quantize(spec, "x", "q", scale.defined() ? "s" : "", zero.defined() ? "z" : ""),
                            make_node("Mul", {"q", "w"}, {"y"})},
                           constants, {}, {"y"}),
                {"w"});
  net.forward({})[0].sum().backward();
  const auto numbers = [&](const char* name) {
    const at::Tensor flat = net.parameters().at(name).grad().contiguous();
    return std::vector<float>(flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel());
  };
  return {numbers("x"), scale.defined() ? numbers("s") : std::vector<float>{}};
}

TEST(FakeQuantize, StraightThroughInsideTheRange) {
  const Tensor x = floats({5}, {-10, -0.6F, 0.3F, 3.5F, 50});
  const Tensor weights = floats({5}, {1, 2, 3, 4, 5});
  // int4 at scale 0.5 with zero point 1: codes - 1 in [-9, 6], values in [-4.5, 3].
  const auto [for_x, for_scale] =
      gradients({.format = "int4"}, x, Tensor::scalar(0.5F), Tensor::scalar<int32_t>(1), weights);
  EXPECT_EQ(for_x, (std::vector<float>{0, 2, 3, 0, 0}));
  // -9 outside, (-1 + 1.2), (1 - 0.6), 6 and 6 outside, each times its weight.
  ASSERT_EQ(for_scale.size(), 1U);
  EXPECT_NEAR(for_scale[0], -9 * 1 + 0.2F * 2 + 0.4F * 3 + 6 * 4 + 6 * 5, 1e-5);
}

TEST(FakeQuantize, EachTilesScaleGetsItsOwnGradient) {
  const Tensor x = floats({2, 3}, {0.3F, 0.3F, 0.3F, 7, 7, 900});
  const Tensor ones = floats({2, 3}, {1, 1, 1, 1, 1, 1});
  const auto [for_x, for_scale] = gradients({.format = "int8", .granularity = Granularity::PerChannel, .axis = 1}, x,
                                            floats({3}, {1, 0.5F, 2}), {}, ones);
  EXPECT_EQ(for_x, (std::vector<float>{1, 1, 1, 1, 1, 0}));
  ASSERT_EQ(for_scale.size(), 3U);
  EXPECT_NEAR(for_scale[0], -0.3F + 0, 1e-6);
  EXPECT_NEAR(for_scale[1], 0.4F + 0, 1e-6);
  EXPECT_NEAR(for_scale[2], -0.15F + 127, 1e-5);
}

TEST(FakeQuantize, FloatFormatsClipToo) {
  const auto [for_x, for_scale] = gradients({.format = "fp8_e4m3"}, floats({3}, {0.33F, 500, 1000}),
                                            Tensor::scalar(2.0F), {}, floats({3}, {1, 1, 1}));
  EXPECT_EQ(for_x, (std::vector<float>{1, 1, 0}));
  EXPECT_NEAR(for_scale[0], (0.171875F - 0.165F) + (256 - 250) + 448, 1e-4);
}

TEST(FakeQuantize, DynamicAndBlocksPassGradientsThrough) {
  const Tensor x = counting({2, 32});
  for (const char* format : {"int8", "mxfp4", "bfloat16"}) {
    const auto [for_x, none] = gradients({.format = format, .axis = -1}, x, {}, {}, x);
    EXPECT_EQ(for_x, x.to_float()) << format;
  }
}

}  // namespace
}  // namespace kaon
