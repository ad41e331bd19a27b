#include "engine/cast.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace kaon {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <typename From>
Value value_of(const std::vector<From>& numbers) {
  return to_value(Tensor::of<From>({std::ssize(numbers)}, numbers));
}

template <typename To, typename From>
std::vector<To> cast_to(const std::vector<From>& numbers) {
  const Tensor out = to_tensor(cast(value_of(numbers), dtype_of<To>()));
  return {out.template as<To>().begin(), out.template as<To>().end()};
}

/// The codes, one to a byte.
std::vector<int> codes(const std::vector<float>& numbers, DType type, const CastOptions& options = {}) {
  const at::Tensor out = cast(value_of(numbers), type, options).tensor.to(at::kInt);
  return {out.data_ptr<int>(), out.data_ptr<int>() + out.numel()};
}

TEST(Cast, CutsFloatsToIntegers) {
  EXPECT_EQ((cast_to<int32_t, float>({1.9F, -1.9F, 0.5F, -0.5F})), (std::vector<int32_t>{1, -1, 0, 0}));
  EXPECT_EQ((cast_to<uint16_t, float>({65535.0F, 3.7F})), (std::vector<uint16_t>{65535, 3}));
  EXPECT_EQ((cast_to<uint64_t, double>({0x1p63, 0x1.8p63, 5.5})),
            (std::vector<uint64_t>{uint64_t{1} << 63, uint64_t{3} << 62, 5}));
}

TEST(Cast, WrapsIntegers) {
  EXPECT_EQ((cast_to<int8_t, int16_t>({200, -129})), (std::vector<int8_t>{-56, 127}));
  EXPECT_EQ((cast_to<uint16_t, int32_t>({-1, 65536 + 7})), (std::vector<uint16_t>{65535, 7}));
  EXPECT_EQ((cast_to<uint32_t, int64_t>({-1, int64_t{1} << 32})), (std::vector<uint32_t>{4294967295U, 0}));
  EXPECT_EQ((cast_to<uint64_t, int32_t>({-1})), (std::vector<uint64_t>{~uint64_t{0}}));
  EXPECT_EQ((cast_to<int32_t, uint32_t>({4294967295U})), (std::vector<int32_t>{-1}));
}

TEST(Cast, ReadsTheUpperHalfOfUint64) {
  EXPECT_EQ((cast_to<float, uint64_t>({uint64_t{1} << 63, ~uint64_t{0}, 3})),
            (std::vector<float>{0x1p63F, 0x1p64F, 3}));
}

TEST(Cast, MakesAnythingButZeroTrue) {
  const Tensor out = to_tensor(cast(value_of<float>({0.0F, -0.0F, 0.1F, kNan}), DType::Bool));
  EXPECT_EQ(out.to_int64(), (std::vector<int64_t>{0, 0, 1, 1}));
}

TEST(Cast, WrapsToFourAndTwoBits) {
  EXPECT_EQ(codes({1.7F, -1.7F, 8.2F, -9.0F, 20.0F}, DType::Int4), (std::vector<int>{1, -1, -8, 7, 4}));
  EXPECT_EQ(codes({-1.5F, 15.5F, 16.0F}, DType::UInt4), (std::vector<int>{15, 15, 0}));
  EXPECT_EQ(codes({1.0F, 2.0F, -3.0F}, DType::Int2), (std::vector<int>{1, -2, 1}));
}

TEST(Cast, SaturatesOrOverflowsEightBitFloats) {
  EXPECT_EQ(codes({448.0F, 1e6F, kInf, -kInf}, DType::Float8E4M3FN), (std::vector<int>{0x7E, 0x7E, 0x7E, 0xFE}));
  EXPECT_EQ(codes({448.0F, 1e6F, kInf}, DType::Float8E4M3FN, {.saturate = false}),
            (std::vector<int>{0x7E, 0x7F, 0x7F}));
  EXPECT_EQ(codes({1e6F, kInf, -kInf}, DType::Float8E5M2), (std::vector<int>{0x7B, 0x7B, 0xFB}));
  EXPECT_EQ(codes({1e6F, kInf, -kInf}, DType::Float8E5M2, {.saturate = false}), (std::vector<int>{0x7C, 0x7C, 0xFC}));
  EXPECT_EQ(codes({-0.0F, kNan}, DType::Float8E4M3FNUZ), (std::vector<int>{0, 0x80}));
}

TEST(Cast, RoundsScalesToPowersOfTwo) {
  const std::vector<float> numbers = {1.0F, 1.5F, 1.25F, 0.0F, 0x1p-126F, 3e38F, kInf, kNan};
  EXPECT_EQ(codes(numbers, DType::Float8E8M0), (std::vector<int>{127, 128, 128, 0, 1, 254, 254, 255}));
  EXPECT_EQ(codes(numbers, DType::Float8E8M0, {.e8m0 = E8M0Rounding::Down}),
            (std::vector<int>{127, 127, 127, 0, 1, 254, 254, 255}));
  EXPECT_EQ(codes(numbers, DType::Float8E8M0, {.saturate = false, .e8m0 = E8M0Rounding::Nearest}),
            (std::vector<int>{127, 128, 127, 0, 1, 255, 255, 255}));
}

TEST(Cast, ReadsEveryEightBitCodeBack) {
  for (const DType type : {DType::Float8E4M3FN, DType::Float8E5M2, DType::Float8E8M0}) {
    const Value all{at::arange(256, at::kByte), type};
    const Value floats = cast(all, DType::Float32);
    const Value again = cast(floats, type, {.saturate = false});
    const at::Tensor numbers = floats.tensor.isnan().logical_not();
    EXPECT_GT(numbers.sum().item<int64_t>(), 240) << name_of(type);
    EXPECT_TRUE(again.tensor.masked_select(numbers).equal(all.tensor.masked_select(numbers))) << name_of(type);
  }
}

}  // namespace
}  // namespace kaon
