#include "engine/ops/single_op_test.h"

namespace kaon {
namespace {

TEST(Pool, AveragePoolWithDilation) {
  SingleOp op("AveragePool", 19);
  op.ints("kernel_shape", {2}).ints("dilations", {3}).ints("strides", {2});
  expect_floats(op.run({counting({1, 1, 6})})[0], {1, 1, 2}, {2.5F, 4.5F});
}

TEST(Pool, CeilModeCountsPadsButNotWhatLiesBeyond) {
  SingleOp op("AveragePool", 19);
  op.ints("kernel_shape", {3}).ints("strides", {2}).ints("pads", {1, 1}).number("ceil_mode", 1);
  op.number("count_include_pad", 1);
  expect_floats(op.run({counting({1, 1, 4})})[0], {1, 1, 3}, {1, 3, 2});
}

TEST(Pool, LpPoolWithDilation) {
  SingleOp op("LpPool", 18);
  op.ints("kernel_shape", {2}).ints("dilations", {2}).ints("strides", {2}).number("ceil_mode", 1);
  expect_floats(op.run({counting({1, 1, 5})})[0], {1, 1, 2}, {3.16228F, 5.83095F});
}

TEST(Pool, MaxPoolIndicesIgnorePadsAndMayRunDownColumns) {
  SingleOp op("MaxPool", 12);
  op.ints("kernel_shape", {2, 2}).ints("pads", {0, 1, 1, 0}).number("storage_order", 1);
  const std::vector<Tensor> y = op.run({floats({1, 1, 3, 3}, {3, 1, 2, 9, 4, 8, 7, 6, 5})}, 2);
  expect_floats(y[0], {1, 1, 3, 3}, {9, 9, 8, 9, 9, 8, 7, 7, 6});
  expect_longs(y[1], {1, 1, 3, 3}, {1, 1, 7, 1, 1, 7, 2, 2, 5});
}

TEST(Pool, WindowWiderThanTheInputFails) {
  EXPECT_THROW(SingleOp("MaxPool", 12).ints("kernel_shape", {4}).run({counting({1, 1, 3})}), Error);
  EXPECT_THROW(SingleOp("MaxPool", 12).ints("kernel_shape", {2, 2}).run({counting({1, 1, 3})}), Error);
  EXPECT_THROW(SingleOp("MaxPool", 12).ints("kernel_shape", {0}).run({counting({1, 1, 3})}), Error);
}

}  // namespace
}  // namespace kaon
