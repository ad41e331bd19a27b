#include "engine/ops/single_op_test.h"

namespace kaon {
namespace {

TEST(Conv, FusedConvAddsAndActivates) {
  SingleOp op("FusedConv", 17, "com.microsoft");
  op.text("activation", "LeakyRelu").set("activation_params", std::vector<float>{0.5F});
  expect_floats(op.run({counting({1, 1, 2, 2}), floats({1, 1, 1, 1}, {-1}), floats({1}, {1}),
                        floats({1, 1, 2, 2}, {0.5F, 1, 1.5F, 2})})[0],
                {1, 1, 2, 2}, {0.5F, 0, -0.25F, -0.5F});
}

TEST(Conv, TransposeWithUnevenPadsFillsItsEndWithTheBias) {
  SingleOp op("ConvTranspose", 11);
  op.ints("strides", {2}).ints("pads", {1, 0}).ints("output_padding", {1});
  expect_floats(op.run({counting({1, 1, 3}), floats({1, 1, 2}, {1, 10}), floats({1}, {0.5F})})[0], {1, 1, 6},
                {10.5F, 2.5F, 20.5F, 3.5F, 30.5F, 0.5F});
}

TEST(Conv, DeformConvSamplesBetweenElements) {
  // The first tap of every window is moved by half an element down and right.
  std::vector<float> offset(8 * 4, 0);
  std::fill(offset.begin(), offset.begin() + 8, 0.5F);
  SingleOp op("DeformConv", 19);
  op.ints("kernel_shape", {2, 2});
  const Tensor weight = floats({1, 1, 2, 2}, {1, 1, 1, 1});
  expect_floats(op.run({counting({1, 1, 3, 3}), weight, floats({1, 8, 2, 2}, offset), floats({1}, {1})})[0],
                {1, 1, 2, 2}, {15, 19, 27, 31});
}

TEST(Conv, WeightThatDoesNotFitFails) {
  SingleOp op("Conv", 11);
  try {
    op.run({counting({1, 2, 5}), counting({1, 3, 2})});
    FAIL() << "three channels were convolved with two";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("a weight [1, 3, 2] in 1 groups does not fit the input [1, 2, 5]"), std::string::npos)
        << message;
  }
  EXPECT_THROW(op.run({counting({1, 2, 5}), counting({1, 2, 2}), counting({3})}), Error);
  EXPECT_THROW(op.run({counting({1, 2, 5}), counting({1, 2, 2, 2})}), Error);
  EXPECT_THROW(op.run({counting({1, 2, 5}), counting({2})}), Error);
  EXPECT_THROW(SingleOp("Conv", 11).ints("strides", {0}).run({counting({1, 2, 5}), counting({1, 2, 2})}), Error);
}

}  // namespace
}  // namespace kaon
