// What ONNX's own tests of these operators leave out: blocks, narrow types, 8-bit floats, half scales, odd numbers.
#include <limits>

#include "engine/ops/single_op_test.h"

namespace kaon {
namespace {

template <typename T>
Tensor number(T value) {
  return Tensor::scalar<T>(value);
}

Tensor packed(DType type, Shape shape, const std::vector<uint8_t>& bytes) {
  return Tensor::copy_bytes(type, std::move(shape), std::as_bytes(std::span(bytes)));
}

std::vector<uint8_t> bytes_of(const Tensor& tensor) {
  const auto* data = reinterpret_cast<const uint8_t*>(tensor.bytes().data());
  return {data, data + tensor.byte_size()};
}

TEST(Quantize, RoundsHalfToEvenThenSaturates) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const Tensor x = floats({8}, {0.5F, 1.5F, -0.5F, -2.5F, 1e30F, -kInf, kInf, std::nanf("")});
  expect_longs(SingleOp("QuantizeLinear", 13).run({x, number(1.0F), number<int8_t>(3)})[0], {8},
               {3, 5, 3, 1, 127, -128, 127, -128});
  expect_longs(SingleOp("QuantizeLinear", 13).run({x, number(1.0F)})[0], {8}, {0, 2, 0, 0, 255, 0, 255, 0});
}

TEST(Quantize, UnevenBlocksOfFourBits) {
  SingleOp op("QuantizeLinear", 21);
  op.number("axis", 1).number("block_size", 2);
  const Tensor x = floats({2, 3}, {1, -2, 3, 10, 20, -30});
  const Tensor scale = floats({2, 2}, {0.5F, 1, 5, 10});
  const Tensor zero = packed(DType::Int4, {2, 2}, {0x10, 0x0F});  // 0, 1, -1, 0
  const Tensor codes = op.run({x, scale, zero})[0];
  EXPECT_EQ(codes.type(), DType::Int4);
  EXPECT_EQ(codes.to_float(), (std::vector<float>{2, -4, 4, 1, 3, -3}));
  SingleOp back("DequantizeLinear", 21);
  back.number("axis", 1).number("block_size", 2);
  expect_floats(back.run({codes, scale, zero})[0], {2, 3}, {1, -2, 3, 10, 20, -30});
  EXPECT_THROW(op.run({x, floats({2, 3}, {1, 1, 1, 1, 1, 1})}), Error);
}

TEST(Quantize, OneBlockLongerThanTheAxis) {
  SingleOp op("DequantizeLinear", 21);
  op.number("axis", 0).number("block_size", int64_t{1} << 30);
  const Tensor x = Tensor::of<int8_t>({3, 1}, std::vector<int8_t>{1, 2, -3});
  expect_floats(op.run({x, floats({1, 1}, {0.5F})})[0], {3, 1}, {0.5F, 1, -1.5F});
}

TEST(Quantize, SixteenBitsAlongTheLastAxis) {
  SingleOp op("QuantizeLinear", 21);
  op.number("axis", -1);
  const Tensor zero = Tensor::of<uint16_t>({2}, std::vector<uint16_t>{40000, 0});
  const Tensor codes = op.run({floats({2, 2}, {-1, 5, 3000, -1}), floats({2}, {0.1F, 2}), zero})[0];
  EXPECT_EQ(codes.type(), DType::UInt16);
  expect_longs(codes, {2, 2}, {39990, 2, 65535, 0});
}

TEST(Quantize, EightBitFloatsSaturateOrNot) {
  const Tensor x = floats({4}, {1000, -1000, 0.3F, 1});
  SingleOp op("QuantizeLinear", 19);
  op.number("output_dtype", static_cast<int64_t>(DType::Float8E4M3FN));
  EXPECT_EQ(bytes_of(op.run({x, number(0.5F)})[0]), (std::vector<uint8_t>{0x7E, 0xFE, 0x32, 0x40}));
  op.number("saturate", 0);
  EXPECT_EQ(bytes_of(op.run({x, number(0.5F)})[0]), (std::vector<uint8_t>{0x7F, 0xFF, 0x32, 0x40}));
  const Tensor codes = packed(DType::Float8E5M2, {3}, {0x3C, 0xC0, 0x01});
  expect_floats(SingleOp("DequantizeLinear", 19).run({codes, number(2.0F)})[0], {3}, {2, -4, 0x1p-15F});
}

TEST(Quantize, FourBitFloatsWithPowerOfTwoScales) {
  SingleOp op("DequantizeLinear", 24);
  op.number("axis", 1).number("block_size", 2).number("output_dtype", static_cast<int64_t>(DType::Float32));
  const Tensor codes = packed(DType::Float4E2M1, {1, 4}, {0x71, 0xF2});  // 0.5, 6, 1, -6
  const Tensor scale = packed(DType::Float8E8M0, {1, 2}, {128, 126});    // 2, 0.5
  expect_floats(op.run({codes, scale})[0], {1, 4}, {1, 12, 0.5F, -3});
}

TEST(Quantize, HalfScaleGivesHalves) {
  const Tensor scale = packed(DType::Float16, {}, {0x00, 0x38});  // 0.5
  const Tensor y = SingleOp("DequantizeLinear", 19).run({number<int8_t>(7), scale, number<int8_t>(4)})[0];
  EXPECT_EQ(y.type(), DType::Float16);
  EXPECT_EQ(y.to_float(), std::vector<float>{1.5F});
}

TEST(Quantize, ThirtyTwoBitCodesAreRoundedOnce) {
  const Tensor y = SingleOp("DequantizeLinear", 13).run({number<int32_t>(16777219), number(1.0F)})[0];
  EXPECT_EQ(y.to_float(), std::vector<float>{16777220.0F});
}

TEST(Quantize, DynamicRangeOfZerosAndOfNothing) {
  SingleOp op("DynamicQuantizeLinear", 11);
  const std::vector<Tensor> zeros = op.run({floats({2}, {0, 0})}, 3);
  expect_longs(zeros[0], {2}, {0, 0});
  expect_floats(zeros[1], {}, {1});
  const std::vector<Tensor> some = op.run({floats({3}, {-1, 0.5F, 4.1F})}, 3);
  expect_longs(some[0], {3}, {0, 75, 255});
  expect_floats(some[1], {}, {0.02F});
  expect_longs(some[2], {}, {50});
  expect_longs(op.run({floats({0}, {})}, 3)[0], {0}, {});
}

TEST(Quantize, WrongParametersFail) {
  const Tensor x = counting({2, 3});
  EXPECT_THROW(SingleOp("QuantizeLinear", 13).run({x, floats({2}, {1, 1})}), Error);
  EXPECT_THROW(SingleOp("QuantizeLinear", 13).run({x, number(1.0F), number(1.0F)}), Error);
  EXPECT_THROW(SingleOp("QuantizeLinear", 21).number("block_size", -1).run({x, number(1.0F)}), Error);
  EXPECT_THROW(SingleOp("QuantizeLinear", 21).number("output_dtype", 99).run({x, number(1.0F)}), Error);
}

}  // namespace
}  // namespace kaon
