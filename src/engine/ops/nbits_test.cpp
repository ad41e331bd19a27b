#include "engine/ops/single_op_test.h"

namespace kaon {
namespace {

Tensor u8(Shape shape, const std::vector<uint8_t>& values) { return Tensor::of<uint8_t>(std::move(shape), values); }
Tensor i8(Shape shape, const std::vector<int8_t>& values) { return Tensor::of<int8_t>(std::move(shape), values); }

/// The weight that `op` sees: the product with the unit matrix, [K, N].
Tensor weight(SingleOp& op, int64_t k, std::vector<Tensor> rest) {
  std::vector<float> unit(static_cast<size_t>(k * k), 0);
  for (int64_t i = 0; i < k; ++i) unit[static_cast<size_t>(i * k + i)] = 1;
  rest.insert(rest.begin(), floats({k, k}, unit));
  return op.run(rest)[0];
}

SingleOp layer(int64_t k, int64_t n, int64_t bits) {
  SingleOp op("MatMulNBits", 17, "com.microsoft");
  op.number("K", k).number("N", n).number("bits", bits).number("block_size", 16);
  return op;
}

TEST(NBits, FourBitsLowNibbleFirst) {
  SingleOp op = layer(3, 2, 4);
  const Tensor b = u8({2, 1, 8}, {0x98, 0xA7, 0, 0, 0, 0, 0, 0, 0x10, 0x0F, 0, 0, 0, 0, 0, 0});
  const Tensor scales = floats({2, 1}, {0.5F, 2});
  expect_floats(weight(op, 3, {b, scales}), {3, 2}, {0, -16, 0.5F, -14, -0.5F, 14});
  // Packed zero points 1 and 2, float ones, and a bias.
  expect_floats(weight(op, 3, {b, scales, u8({2, 1}, {1, 2})}), {3, 2}, {3.5F, -4, 4, -2, 3, 26});
  expect_floats(weight(op, 3, {b, scales, floats({2, 1}, {0.5F, 1})}), {3, 2}, {3.75F, -2, 4.25F, 0, 3.25F, 28});
  expect_floats(weight(op, 3, {b, scales, {}, {}, floats({2}, {100, 200})}), {3, 2},
                {100, 184, 100.5F, 186, 99.5F, 214});
}

TEST(NBits, TwoBitsAndTwoBlocks) {
  SingleOp op = layer(18, 1, 2);
  const Tensor b = u8({1, 2, 4}, {0xE4, 0xAA, 0xAA, 0xAA, 0x0D, 0, 0, 0});
  const Tensor scales = floats({1, 2}, {1, 10});
  expect_floats(weight(op, 18, {b, scales}), {18, 1}, {-2, -1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -10, 10});
  // Zero points 0 and 3; then every column in the second group.
  expect_floats(weight(op, 18, {b, scales, u8({1, 1}, {0x0C})}), {18, 1},
                {0, 1, 2, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, -20, 0});
  const Tensor groups = Tensor::of<int32_t>({18}, std::vector<int32_t>(18, 1));
  expect_floats(weight(op, 18, {b, scales, {}, groups}), {18, 1},
                {-20, -10, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -10, 10});
}

TEST(NBits, EightBits) {
  SingleOp op = layer(2, 1, 8);
  std::vector<uint8_t> bytes(16, 0);
  bytes[0] = 255;
  expect_floats(weight(op, 2, {u8({1, 1, 16}, bytes), floats({1, 1}, {0.5F})}), {2, 1}, {63.5F, -64});
}

TEST(NBits, WrongSizesFail) {
  SingleOp op = layer(3, 2, 4);
  const Tensor b = u8({2, 1, 8}, std::vector<uint8_t>(16, 0));
  EXPECT_THROW(weight(op, 3, {b, floats({1, 1}, {1})}), Error);
  EXPECT_THROW(weight(op, 3, {u8({1, 1, 8}, std::vector<uint8_t>(8, 0)), floats({2, 1}, {1, 1})}), Error);
  SingleOp three = layer(3, 2, 3);
  EXPECT_THROW(weight(three, 3, {b, floats({2, 1}, {1, 1})}), Error);
  SingleOp huge = layer(int64_t{1} << 60, 2, 4);
  EXPECT_THROW(weight(huge, 3, {b, floats({2, 1}, {1, 1})}), Error);
}

TEST(NBits, DynamicLstmRoundsInputsAndStates) {
  SingleOp op("DynamicQuantizeLSTM", 17, "com.microsoft");
  op.number("hidden_size", 1);
  const std::vector<Tensor> y = op.run({floats({2, 1, 1}, {1, -0.5F}),
                                        i8({1, 1, 4}, {10, -20, 30, 40}),
                                        i8({1, 1, 4}, {-50, 60, 70, -80}),
                                        floats({1, 8}, std::vector<float>(8, 0.1F)),
                                        {},
                                        {},
                                        {},
                                        {},
                                        floats({1}, {0.02F}),
                                        i8({1}, {0}),
                                        floats({1, 4}, {0.01F, 0.02F, 0.03F, 0.04F}),
                                        i8({1, 4}, {0, 0, 0, 0})},
                                       3);
  expect_floats(y[0], {2, 1, 1, 1}, {0.192123368F, -0.0485096909F});
  expect_floats(y[1], {1, 1, 1}, {-0.0485096909F});
  expect_floats(y[2], {1, 1, 1}, {-0.0744687617F});
}

}  // namespace
}  // namespace kaon
