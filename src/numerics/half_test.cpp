#include "numerics/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "numerics/reference.h"

namespace kaon {
namespace {

constexpr QuantizeOptions kOverflow{.saturate = false};

uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }

/// `value` and its neighbours against the oracle.
template <class Convert>
void check_around(const char* name, float value, const Convert& convert) {
  for (const float x : {std::nextafter(value, -INFINITY), value, std::nextafter(value, INFINITY)}) {
    if (std::isnan(x)) continue;
    ASSERT_EQ(convert(x), reference::encode(format(name), x, kOverflow)) << name << " of " << x;
  }
}

TEST(Half, Float16RoundTripsEveryPattern) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = float16_to_float32(half);
    const bool nan = (bits & 0x7fff) > 0x7c00;
    ASSERT_EQ(std::isnan(value), nan);
    // A signaling NaN comes back quiet.
    ASSERT_EQ(float32_to_float16(value), nan ? half | 0x200 : half) << bits;
    if (!nan) {
      ASSERT_EQ(bits_of(value), bits_of(static_cast<float>(reference::decode(format("float16"), bits))));
    }
  }
}

TEST(Half, BFloat16RoundTripsEveryPattern) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = bfloat16_to_float32(half);
    const bool nan = (bits & 0x7fff) > 0x7f80;
    ASSERT_EQ(std::isnan(value), nan);
    ASSERT_EQ(float32_to_bfloat16(value), nan ? half | 0x40 : half) << bits;
    if (!nan) {
      ASSERT_EQ(bits_of(value), bits_of(static_cast<float>(reference::decode(format("bfloat16"), bits))));
    }
  }
}

TEST(Half, RoundsHalfToEvenAtEveryTie) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    // The tie between a float16 and the next lies half a unit of its last bit above it.
    const float low = float16_to_float32(static_cast<uint16_t>(bits));
    const float high = float16_to_float32(static_cast<uint16_t>(bits + 1));
    if (std::isfinite(low) && std::isfinite(high)) check_around("float16", (low + high) / 2, float32_to_float16);
    check_around("float16", low, float32_to_float16);
    const uint32_t tie = bits << 16 | 0x8000;
    check_around("bfloat16", std::bit_cast<float>(tie), float32_to_bfloat16);
    check_around("bfloat16", std::bit_cast<float>(bits << 16), float32_to_bfloat16);
  }
}

TEST(Half, Limits) {
  EXPECT_EQ(float32_to_float16(65504.0f), 0x7bff);
  EXPECT_EQ(float32_to_float16(std::nextafter(65520.0f, 0.0f)), 0x7bff);
  EXPECT_EQ(float32_to_float16(65520.0f), 0x7c00);
  EXPECT_EQ(float32_to_float16(-1e30f), 0xfc00);
  EXPECT_EQ(float32_to_float16(0x1p-25f), 0x0000) << "a tie with the even zero";
  EXPECT_EQ(float32_to_float16(std::nextafter(0x1p-25f, 1.0f)), 0x0001);
  EXPECT_EQ(float32_to_float16(-0x1p-149f), 0x8000);
  EXPECT_EQ(float32_to_bfloat16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(float32_to_bfloat16(-INFINITY), 0xff80);
}

TEST(Half, NanKeepsSignAndPayload) {
  EXPECT_EQ(float32_to_float16(std::bit_cast<float>(0x7fc12000u)), 0x7e09);
  EXPECT_EQ(float32_to_float16(std::bit_cast<float>(0xff800001u)), 0xfe00) << "signaling, payload too low to keep";
  EXPECT_EQ(float32_to_bfloat16(std::bit_cast<float>(0xff800001u)), 0xffc0);
  EXPECT_EQ(bits_of(float16_to_float32(0xfe01)), 0xffc02000u);
}

}  // namespace
}  // namespace kaon
