#include "engine/ops/single_op_test.h"

namespace kaon {
namespace {

Tensor u8(Shape shape, const std::vector<uint8_t>& values) { return Tensor::of<uint8_t>(std::move(shape), values); }
Tensor i8(Shape shape, const std::vector<int8_t>& values) { return Tensor::of<int8_t>(std::move(shape), values); }
Tensor i32(Shape shape, const std::vector<int32_t>& values) { return Tensor::of<int32_t>(std::move(shape), values); }
Tensor real(float value) { return Tensor::scalar<float>(value); }

const Tensor kA = u8({2, 2}, {1, 2, 3, 4});
const Tensor kB = i8({2, 2}, {1, -2, 3, 4});
const Tensor kBScale = floats({2}, {0.5F, 0.25F});
const Tensor kBZero = i8({2}, {0, 1});
const Tensor kAZero = u8({}, {1});

TEST(QProduct, ZeroPointsOfRowsAndColumns) {
  expect_longs(SingleOp("MatMulInteger", 10).run({kA, kB, u8({2}, {1, 2}), kBZero})[0], {2, 2}, {3, 3, 7, 3});
}

TEST(QProduct, LongSumsStayExact) {
  // Past 2^24 float32 would lose the ones.
  const int64_t k = 1001;
  std::vector<uint8_t> a(static_cast<size_t>(k), 255);
  a.back() = 1;
  const Tensor b = u8({k, 1}, std::vector<uint8_t>(static_cast<size_t>(k), 255));
  expect_longs(SingleOp("MatMulInteger", 10).run({u8({1, k}, a), b})[0], {1, 1}, {1000 * 255 * 255 + 255});
}

TEST(QProduct, LongSumsInConvolutionsStayExact) {
  const int64_t k = 1001;
  std::vector<uint8_t> x(static_cast<size_t>(k), 255);
  x.back() = 1;
  const Tensor w = u8({2, k, 1}, std::vector<uint8_t>(static_cast<size_t>(2 * k), 255));
  const int64_t sum = 1000 * 255 * 255 + 255;
  expect_longs(SingleOp("ConvInteger", 10).run({u8({1, k, 1}, x), w})[0], {1, 2, 1}, {sum, sum});
  // Short products, but a bias past 2^24.
  const Tensor y = SingleOp("QLinearConv", 10)
                       .run({u8({1, 1, 2}, {1, 3}), real(1), u8({}, {0}), i8({1, 1, 1}, {1}), real(1), i8({}, {0}),
                             real(1), u8({}, {0}), i32({1}, {(1 << 24) + 1})})[0];
  expect_longs(y, {1, 1, 2}, {255, 255});
}

TEST(QProduct, ConvIntegerPadsWithItsZeroPoint) {
  SingleOp op("ConvInteger", 10);
  op.ints("pads", {1, 0});
  const Tensor w = i8({2, 1, 2}, {1, 2, 3, 4});
  expect_longs(op.run({u8({1, 1, 2}, {10, 12}), w, u8({}, {9}), i8({2}, {1, 2})})[0], {1, 2, 2}, {1, 3, 2, 7});
}

TEST(QProduct, QLinearConvRequantizesEachChannel) {
  SingleOp op("QLinearConv", 10);
  const std::vector<Tensor> inputs{u8({1, 1, 2}, {10, 13}),    real(0.5F),      u8({}, {9}), i8({2, 1, 1}, {3, -2}),
                                   floats({2}, {0.5F, 0.25F}), i8({2}, {0, 0}), real(0.25F), u8({}, {100}),
                                   i32({2}, {1, 100})};
  // (1·3+1), (4·3+1) exactly; (−2+100)/2, (−8+100)/2
  expect_longs(op.run(inputs)[0], {1, 2, 2}, {104, 113, 149, 146});
  SingleOp last("QLinearConv", 10, "com.microsoft");
  last.number("channels_last", 1);
  std::vector<Tensor> turned = inputs;
  turned[0] = u8({1, 2, 1}, {10, 13});
  expect_longs(last.run(turned)[0], {1, 2, 2}, {104, 149, 113, 146});
}

TEST(QProduct, QGemmToCodesAndToFloats) {
  SingleOp op("QGemm", 17, "com.microsoft");
  const Tensor bias = i32({2}, {4, -8});
  expect_longs(op.run({kA, real(0.5F), kAZero, kB, kBScale, kBZero, bias, real(0.5F), u8({}, {100})})[0], {2, 2},
               {104, 99, 108, 99});
  op.real("alpha", 2);
  expect_floats(op.run({kA, real(0.5F), kAZero, kB, kBScale, kBZero, bias})[0], {2, 2}, {3.5F, -1.25F, 7.5F, -1.25F});
  op.number("transA", 1).number("transB", 1);
  expect_floats(
      op.run({u8({2, 2}, {1, 3, 2, 4}), real(0.5F), kAZero, i8({2, 2}, {1, 3, -2, 4}), kBScale, kBZero, bias})[0],
      {2, 2}, {3.5F, -1.25F, 7.5F, -1.25F});
}

TEST(QProduct, MatMulIntegerToFloat) {
  SingleOp op("MatMulIntegerToFloat", 17, "com.microsoft");
  expect_floats(op.run({kA, kB, real(0.5F), kBScale, kAZero, kBZero, floats({2}, {10, 20})})[0], {2, 2},
                {10.75F, 20.375F, 12.75F, 20.375F});
}

TEST(QProduct, DynamicQuantizeMatMul) {
  SingleOp op("DynamicQuantizeMatMul", 17, "com.microsoft");
  expect_floats(op.run({floats({2, 2}, {0, 1, -1, 1.55F}), kB, real(0.5F), i8({}, {1}), floats({2}, {10, 20})})[0],
                {2, 2}, {11, 21.5F, 11.55F, 23.825F});
}

TEST(QProduct, WrongShapesFail) {
  EXPECT_THROW(SingleOp("MatMulInteger", 10).run({kA, i8({3, 1}, {1, 2, 3})}), Error);
  SingleOp op("ConvInteger", 10);
  EXPECT_THROW(op.number("group", 0).run({u8({1, 1, 2}, {1, 2}), i8({1, 1, 1}, {1})}), Error);
}

}  // namespace
}  // namespace kaon
