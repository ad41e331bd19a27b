#include "debug/limits.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace kaon {
namespace {

Quantizer quantizer_of(const std::string& format, std::vector<float> scale = {}, std::vector<int32_t> zero = {}) {
  Quantizer quantizer;
  quantizer.spec.format = format;
  quantizer.spec.axis = -1;
  quantizer.params.scale = std::move(scale);
  quantizer.params.zero_point = std::move(zero);
  return quantizer;
}

/// One element alone: is it clipped?
bool clips(const Quantizer& quantizer, float value, std::vector<float> others = {}) {
  others.insert(others.begin(), value);
  const Shape shape{std::ssize(others)};
  std::vector<float> made(others.size());
  if (quantizer.params.scale.empty()) {
    fake_quantize(others, made, shape, quantizer.spec);
  } else {
    fake_quantize(others, made, shape, quantizer.spec, quantizer.params);
  }
  ClipCounts counts;
  Limits(quantizer, others, shape).count(others, made, 0, 1, counts);
  return counts.clipped == 1;
}

TEST(Limits, IntegersEndHalfAStepBeyondTheLastCode) {
  const Quantizer uint8 = quantizer_of("uint8", {0.5F}, {10});  // -5 … 122.5
  EXPECT_FALSE(clips(uint8, 122.74F));
  EXPECT_TRUE(clips(uint8, 122.76F));
  EXPECT_FALSE(clips(uint8, -5.24F));
  EXPECT_TRUE(clips(uint8, -5.26F));
  ASSERT_TRUE(representable_range(uint8).has_value());
  EXPECT_EQ(representable_range(uint8)->min, -5);
  EXPECT_EQ(representable_range(uint8)->max, 122.5F);
  EXPECT_EQ(code_step(uint8), 0.5);
}

TEST(Limits, FloatsEndHalfTheirLastGapBeyondTheLargest) {
  const Quantizer fp8 = quantizer_of("fp8_e4m3", {2});  // 448, gap 32
  EXPECT_FALSE(clips(fp8, 927));
  EXPECT_TRUE(clips(fp8, 929));
  EXPECT_TRUE(clips(fp8, -929));
  EXPECT_FALSE(clips(quantizer_of("float16"), 65500));
  EXPECT_TRUE(clips(quantizer_of("float16"), 1e6F));
  EXPECT_EQ(code_step(fp8), 0);
}

TEST(Limits, BlocksFollowTheirOwnScale) {
  Quantizer mxfp8 = quantizer_of("mxfp8_e4m3");
  mxfp8.spec.block_scale = BlockScaleMode::Floor;
  // A scale of 1 for 256 ≤ amax < 512: 448 is the largest.
  EXPECT_FALSE(clips(mxfp8, 463));
  EXPECT_TRUE(clips(mxfp8, 465));
  mxfp8.spec.block_scale = BlockScaleMode::Ceil;
  EXPECT_FALSE(clips(mxfp8, 500));
  EXPECT_FALSE(clips(quantizer_of("bfp16"), 1.9999F)) << "it widens instead";
  EXPECT_FALSE(clips(quantizer_of("nvfp4"), 3, {1, 2, 6}));
  EXPECT_FALSE(representable_range(mxfp8).has_value());
}

TEST(Limits, ChannelsHaveTheirOwn) {
  Quantizer weight = quantizer_of("int8", {1, 0.1F});
  weight.kind = Slot::Weight;
  weight.spec.granularity = Granularity::PerChannel;
  const Shape shape{3, 2};
  weight.params.tiling = Tiling::per_channel(shape, 1);
  const std::vector<float> x = {100, 100, 200, 5, 0, 12.69F};
  std::vector<float> q(6);
  fake_quantize(x, q, shape, weight.spec, weight.params);
  ClipCounts counts;
  const Limits limits(weight, x, shape);
  limits.count(x, q, 0, 6, counts);
  EXPECT_EQ(counts.clipped, 2);
  EXPECT_EQ(counts.nonzero, 5);
  EXPECT_NEAR(counts.clip_squared_error, 73 * 73 + 87.3 * 87.3, 0.01);
  EXPECT_FALSE(representable_range(weight).has_value());
}

TEST(Limits, NanAndInfAreLeftOut) {
  const Quantizer int8 = quantizer_of("int8", {1});
  const std::vector<float> x = {NAN, INFINITY, -INFINITY, 0.2F, 300};
  const std::vector<float> q = {0, 127, -128, 0, 127};
  ClipCounts counts;
  Limits(int8, x, Shape{5}).count(x, q, 0, 5, counts);
  EXPECT_EQ(counts.clipped, 1);
  EXPECT_EQ(counts.nonzero, 2);
  EXPECT_EQ(counts.zeroed, 1);
}

}  // namespace
}  // namespace kaon
