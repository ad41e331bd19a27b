#include "engine/ops/single_op_test.h"

namespace kaon {
namespace {

Tensor u8(Shape shape, const std::vector<uint8_t>& values) { return Tensor::of<uint8_t>(std::move(shape), values); }
Tensor zero(uint8_t value) { return u8({}, {value}); }
Tensor real(float value) { return Tensor::scalar<float>(value); }
SingleOp qlinear(const std::string& name) { return {"QLinear" + name, 17, "com.microsoft"}; }

const Tensor kA = u8({3}, {0, 10, 255});
const Tensor kB = u8({3}, {3, 200, 255});

TEST(QLinear, AddAndMul) {
  expect_longs(qlinear("Add").run({kA, real(0.5F), zero(10), kB, real(0.25F), zero(4), real(0.5F), zero(20)})[0], {3},
               {10, 118, 255});
  expect_longs(qlinear("Mul").run({kA, real(0.5F), zero(10), kB, real(0.25F), zero(4), real(2.5F), zero(20)})[0], {3},
               {20, 20, 255});
}

TEST(QLinear, OmittedZeroPointsAreZero) {
  expect_longs(qlinear("Add").run({kA, real(0.5F), {}, kB, real(0.25F), {}, real(0.5F)})[0], {3}, {2, 110, 255});
}

TEST(QLinear, Activations) {
  const Tensor x = u8({3}, {0, 10, 200});
  expect_longs(qlinear("Sigmoid").run({x, real(0.02F), zero(3), real(1.0F / 256), zero(0)})[0], {3}, {124, 137, 251});
  expect_longs(qlinear("LeakyRelu").real("alpha", 0.1F).run({x, real(0.5F), zero(100), real(0.25F), zero(50)})[0], {3},
               {30, 32, 250});
  expect_longs(qlinear("Softmax")
                   .number("axis", -1)
                   .number("opset", 13)
                   .run({u8({2, 3}, {0, 10, 200, 30, 40, 250}), real(0.02F), zero(3), real(1.0F / 256), zero(0)})[0],
               {2, 3}, {5, 6, 246, 3, 4, 249});
}

TEST(QLinear, SoftmaxOfOldOpsetsSeesAMatrix) {
  const std::vector<Tensor> inputs{u8({1, 2, 2}, {0, 0, 0, 0}), real(1), zero(0), real(1.0F / 256), zero(0)};
  expect_longs(qlinear("Softmax").number("axis", 1).number("opset", 12).run(inputs)[0], {1, 2, 2}, {64, 64, 64, 64});
  expect_longs(qlinear("Softmax").number("axis", 1).number("opset", 13).run(inputs)[0], {1, 2, 2},
               {128, 128, 128, 128});
}

TEST(QLinear, Pools) {
  const std::vector<Tensor> inputs{u8({1, 1, 2, 3}, {0, 10, 20, 31, 40, 50}), real(0.5F), zero(10), real(0.25F),
                                   zero(20)};
  expect_longs(qlinear("AveragePool").ints("kernel_shape", {2, 2}).run(inputs)[0], {1, 1, 1, 2}, {40, 60});
  expect_longs(qlinear("GlobalAveragePool").run(inputs)[0], {1, 1, 1, 1}, {50});
  std::vector<Tensor> last = inputs;
  last[0] = u8({1, 2, 1, 3}, {0, 10, 20, 31, 40, 50});
  expect_longs(qlinear("GlobalAveragePool").number("channels_last", 1).run(last)[0], {1, 1, 1, 3}, {31, 50, 70});
}

TEST(QLinear, ConcatBringsAllPartsToOneScale) {
  SingleOp op = qlinear("Concat");
  op.number("axis", 0);
  expect_longs(op.run({real(0.5F), zero(20), kA, real(0.25F), zero(10), kB, real(1), zero(4)})[0], {6},
               {15, 20, 142, 18, 255, 255});
}

}  // namespace
}  // namespace kaon
