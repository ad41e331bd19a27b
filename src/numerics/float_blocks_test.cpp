#include "numerics/float_blocks.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/error.h"
#include "numerics/half.h"
#include "numerics/test_targets-inl.h"

namespace kaon {
namespace {

TEST(FloatBlocks, every_half_converts_as_the_reference_does) {
  std::vector<uint16_t> halves(1 << 16);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> scratch(kBlock);
  for_each_simd_target([&] {
    for (const auto type : {FloatView::Type::Float16, FloatView::Type::BFloat16}) {
      const FloatView view(halves.data(), std::ssize(halves), type);
      for (int64_t begin = 0; begin < view.size; begin += kBlock - 3) {
        const int64_t count = std::min(kBlock - 3, view.size - begin);
        const float* values = load_floats(view, begin, count, scratch.data());
        for (int64_t i = 0; i < count; ++i) {
          const uint16_t bits = halves[static_cast<size_t>(begin + i)];
          const bool half = type == FloatView::Type::Float16;
          const float expected = half ? float16_to_float32(bits) : bfloat16_to_float32(bits);
          if (std::isnan(expected)) {
            ASSERT_TRUE(std::isnan(values[i])) << bits;
          } else {
            ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(expected)) << bits;
          }
        }
      }
    }
  });
}

TEST(FloatBlocks, a_view_may_start_at_any_byte) {
  const std::vector<float> values{1.5f, -2.25f, 3e-40f, 7.0f};
  std::vector<std::byte> bytes(sizeof(float) * 4 + 1);
  std::memcpy(bytes.data() + 1, values.data(), sizeof(float) * 4);
  float scratch[kBlock];
  const float* loaded = load_floats({bytes.data() + 1, 4, FloatView::Type::Float32}, 1, 3, scratch);
  EXPECT_EQ(std::vector<float>(loaded, loaded + 3), std::vector<float>(values.begin() + 1, values.end()));

  const uint16_t halves[] = {0x3c00, 0xc000, 0x0001};
  std::memcpy(bytes.data() + 1, halves, sizeof halves);
  loaded = load_floats({bytes.data() + 1, 3, FloatView::Type::Float16}, 0, 3, scratch);
  EXPECT_EQ(std::vector<float>(loaded, loaded + 3), (std::vector<float>{1, -2, 0x1p-24f}));
}

TEST(FloatBlocks, range_finds_an_extreme_at_every_place) {
  for_each_simd_target([] {
    for (int64_t count = 1; count <= 150; ++count) {
      std::vector<float> values(static_cast<size_t>(count), 1.0f);
      for (size_t at = 0; at < values.size(); ++at) {
        values[at] = -5;
        EXPECT_EQ(block_range(values.data(), count).min, -5);
        values[at] = 9;
        const BlockRange range = block_range(values.data(), count);
        EXPECT_EQ(range.max, 9);
        EXPECT_EQ(range.min, count == 1 ? 9 : 1);
        EXPECT_EQ(range.sum, static_cast<float>(count + 8));
        for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                                std::numeric_limits<float>::quiet_NaN()}) {
          values[at] = bad;
          EXPECT_FALSE(std::isfinite(block_range(values.data(), count).sum));
        }
        values[at] = 1;
      }
    }
  });
}

TEST(FloatBlocks, bad_views_are_named) {
  EXPECT_NO_THROW(check_view({nullptr, 0, FloatView::Type::Float32}, "in"));
  const auto type = FloatView::Type::Float32;
  for (const FloatView& view : {FloatView(nullptr, 3, type), FloatView("", -1, type)}) {
    try {
      check_view(view, "in");
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::InvalidInput);
      EXPECT_EQ(error.where(), "in");
    }
  }
}

}  // namespace
}  // namespace kaon
