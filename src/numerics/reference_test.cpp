#include "numerics/reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "numerics/half.h"
#include "numerics/random.h"

namespace kaon {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Integer and Float formats whose codes can be listed.
std::vector<Format> formats_up_to(int bits) {
  std::vector<Format> found;
  for (const auto& [name, f] : formats().items()) {
    if (f.kind != FormatKind::Block && f.bits <= bits) found.push_back(f);
  }
  return found;
}

uint32_t low_bits(const Format& f, uint32_t code) { return code & ((1u << f.bits) - 1); }

struct Coded {
  double value;
  uint32_t code;
};

/// The finite values in order, one code each (+0 rather than -0).
std::vector<Coded> ladder(const Format& f) {
  std::vector<Coded> steps;
  for (uint32_t code = 0; code < 1u << f.bits; ++code) {
    const double value = reference::decode(f, code);
    if (std::isfinite(value) && !(value == 0 && std::signbit(value))) steps.push_back({value, code});
  }
  std::sort(steps.begin(), steps.end(), [](const Coded& a, const Coded& b) { return a.value < b.value; });
  return steps;
}

/// What rounding and saturation mean, found by looking through the ladder: the value `x` becomes.
double rounded(const std::vector<Coded>& steps, double x, Rounding rounding, double u) {
  if (x <= steps.front().value) return steps.front().value;
  if (x >= steps.back().value) return steps.back().value;
  const auto above =
      std::lower_bound(steps.begin(), steps.end(), x, [](const Coded& c, double value) { return c.value < value; });
  if (above->value == x) return x;
  const Coded& high = *above;
  const Coded& low = *(above - 1);
  const double middle = (low.value + high.value) / 2;
  const bool high_is_farther_from_zero = std::abs(high.value) > std::abs(low.value);
  switch (rounding) {
    case Rounding::Floor: return low.value;
    case Rounding::Ceil: return high.value;
    case Rounding::HalfEven:
      if (x == middle) return (low.code & 1) == 0 ? low.value : high.value;
      return x < middle ? low.value : high.value;
    case Rounding::HalfAway:
      if (x == middle) return high_is_farther_from_zero ? high.value : low.value;
      return x < middle ? low.value : high.value;
    case Rounding::Stochastic: {
      const Coded& near = high_is_farther_from_zero ? low : high;
      const Coded& far = high_is_farther_from_zero ? high : low;
      return (x - near.value) / (far.value - near.value) > u ? far.value : near.value;
    }
  }
  return 0;
}

TEST(Reference, DecodeThenEncodeIsTheIdentity) {
  for (const Format& f : formats_up_to(16)) {
    for (uint32_t code = 0; code < 1u << f.bits; ++code) {
      const double value = reference::decode(f, code);
      for (const bool saturate : {true, false}) {
        const uint32_t again = reference::encode(f, static_cast<float>(value), {.saturate = saturate});
        if (std::isnan(value)) {
          ASSERT_TRUE(std::isnan(reference::decode(f, again))) << f.name << " " << code;
        } else if (std::isinf(value) && saturate) {
          ASSERT_EQ(reference::decode(f, again), std::copysign(f.max(), value)) << f.name << " " << code;
        } else {
          ASSERT_EQ(low_bits(f, again), code) << f.name;
        }
      }
    }
  }
}

TEST(Reference, EveryFloat16InputRoundsToTheRightStep) {
  const Rounding roundings[] = {Rounding::HalfEven, Rounding::HalfAway, Rounding::Floor, Rounding::Ceil,
                                Rounding::Stochastic};
  for (const Format& f : formats_up_to(8)) {
    const std::vector<Coded> steps = ladder(f);
    for (const Rounding rounding : roundings) {
      const QuantizeOptions options{.rounding = rounding, .seed = 7};
      for (uint32_t bits = 0; bits < 0x10000; ++bits) {
        const float x = float16_to_float32(static_cast<uint16_t>(bits));
        if (std::isnan(x)) continue;
        const double got = reference::decode(f, reference::encode(f, x, options, bits));
        ASSERT_EQ(got, rounded(steps, x, rounding, random_unit(7, bits)))
            << f.name << " of " << x << ", rounding " << static_cast<int>(rounding);
      }
    }
  }
}

TEST(Reference, TiesAndTheirNeighboursInFloat32) {
  for (const Format& f : formats_up_to(8)) {
    const std::vector<Coded> steps = ladder(f);
    for (size_t i = 0; i + 1 < steps.size(); ++i) {
      const auto tie = static_cast<float>((steps[i].value + steps[i + 1].value) / 2);
      for (const float x : {tie, std::nextafter(tie, -kInf), std::nextafter(tie, kInf)}) {
        for (const Rounding rounding : {Rounding::HalfEven, Rounding::HalfAway, Rounding::Floor, Rounding::Ceil}) {
          const double got = reference::decode(f, reference::encode(f, x, {.rounding = rounding}));
          ASSERT_EQ(got, rounded(steps, x, rounding, 0)) << f.name << " of " << x;
        }
      }
    }
  }
}

TEST(Reference, ZeroSignNanAndInf) {
  for (const Format& f : formats_up_to(32)) {
    const bool is_float = f.kind == FormatKind::Float;
    const bool has_nan = is_float && f.specials != FloatSpecials::Finite;
    const bool has_negative_zero = is_float && f.specials != FloatSpecials::NegZeroNan;
    const auto round_trip = [&](float x, bool saturate) {
      return reference::decode(f, reference::encode(f, x, {.saturate = saturate}));
    };
    for (const bool saturate : {true, false}) {
      EXPECT_EQ(reference::encode(f, 0.0f, {.saturate = saturate}), 0u) << f.name;
      EXPECT_EQ(std::signbit(round_trip(-0.0f, saturate)), has_negative_zero) << f.name;
      EXPECT_EQ(std::signbit(round_trip(-0x1p-149f, saturate)), has_negative_zero) << f.name;
      for (const float nan : {kNan, -kNan}) {
        if (has_nan) {
          EXPECT_TRUE(std::isnan(round_trip(nan, saturate))) << f.name;
        } else {
          EXPECT_EQ(reference::encode(f, nan, {.saturate = saturate}), 0u) << f.name;
        }
      }
    }
    for (const float x : {kInf, std::numeric_limits<float>::max()}) {
      EXPECT_EQ(round_trip(x, true), f.max()) << f.name;
      EXPECT_EQ(round_trip(-x, true), f.min()) << f.name;
      const bool past = x > f.max() * 1.01;
      if (is_float && f.specials == FloatSpecials::Ieee && past) {
        EXPECT_EQ(round_trip(x, false), kInf) << f.name;
        EXPECT_EQ(round_trip(-x, false), -kInf) << f.name;
      } else if (has_nan && past) {
        EXPECT_TRUE(std::isnan(round_trip(x, false))) << f.name;
      } else if (past) {
        EXPECT_EQ(round_trip(x, false), f.max()) << f.name;
      }
    }
  }
}

TEST(Reference, IntegersFollowQuantizeLinear) {
  const auto q = [](const char* name, float x, float scale, int32_t zero_point) {
    return static_cast<int32_t>(reference::quantize_one(format(name), x, scale, zero_point, {}, 0));
  };
  // The rounding comes before the zero point: 2.5 -> 2, then + 1. Rounding 3.5 would give 4.
  EXPECT_EQ(q("uint8", 2.5f, 1, 1), 3);
  EXPECT_EQ(q("uint8", 3.5f, 1, 1), 5);
  EXPECT_EQ(q("int8", -2.5f, 1, -1), -3);
  EXPECT_EQ(q("uint8", -1000.0f, 2, 128), 0);
  EXPECT_EQ(q("uint8", 1000.0f, 2, 128), 255);
  EXPECT_EQ(q("int8", 254.0f, 2, 0), 127);
  EXPECT_EQ(q("int8", -258.0f, 2, 0), -128);
  EXPECT_EQ(q("int4", 100.0f, 1, 3), 7);
  EXPECT_EQ(q("int2", -100.0f, 1, 0), -2);
  EXPECT_EQ(q("uint16", 65534.4f, 1, 0), 65534);
  EXPECT_EQ(q("int32", 3e9f, 1, 5), 2147483647);
  EXPECT_EQ(q("int32", -3e9f, 1, 5), -2147483647 - 1);
  EXPECT_EQ(q("uint8", kNan, 0.1f, 77), 77);
  EXPECT_EQ(q("uint8", kInf, 0.1f, 77), 255);
  EXPECT_EQ(q("int8", 1e38f, 1e-30f, 0), 127) << "the quotient overflows";
  // The quotient is rounded to float32 first, as the runtime does: 0.15f/0.1f is exactly 1.5 there, 1.50000004 in real
  // numbers; 0.05f/0.1f is 0.5.
  EXPECT_EQ(0.15f / 0.1f, 1.5f);
  EXPECT_EQ(q("int8", 0.15f, 0.1f, 0), 2);
  EXPECT_EQ(q("int8", 0.05f, 0.1f, 0), 0);
  EXPECT_EQ(q("int8", 0.25f, 0.1f, 0), 2) << "0.25f/0.1f rounds to 2.5";
  // (code - zero point) · scale
  EXPECT_EQ(reference::dequantize_one(format("uint8"), 3, 0.1f, 128), -125.0f * 0.1f);
  EXPECT_EQ(reference::dequantize_one(format("int4"), 0xf, 0.5f, 0), -0.5f) << "only the low four bits count";
  EXPECT_EQ(reference::dequantize_one(format("int32"), 0x80000000u, 1.0f, 1), -2147483648.0f);
}

TEST(Reference, StochasticRoundingIsFairAndRepeats) {
  const QuantizeOptions options{.rounding = Rounding::Stochastic, .seed = 42};
  const int64_t count = 100000;
  for (const float x : {0.25f, -0.25f, 2.9f, -2.5f}) {
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t code = reference::encode(format("int8"), x, options, i);
      ASSERT_EQ(code, reference::encode(format("int8"), x, options, i));
      sum += reference::decode(format("int8"), code);
    }
    EXPECT_NEAR(sum / count, x, 0.008) << "five standard deviations";
  }
  int same = 0;
  for (uint64_t i = 0; i < 10000; ++i) same += (random_unit(1, i) < 0.5f) == (random_unit(2, i) < 0.5f);
  EXPECT_NEAR(same, 5000, 250) << "another seed is another sequence";
  EXPECT_NE(random_unit(1, 5), random_unit(1, 5 + (uint64_t{1} << 32)));
}

uint32_t scale_code(const char* name, float amax, BlockScaleMode mode) {
  const std::vector<float> x = {amax};
  const int64_t shape[] = {1};
  return static_cast<uint32_t>(reference::quantize_blocks(x, format(name), shape, 0, {.scale_mode = mode}).scales[0]);
}

TEST(Reference, E8M0ScaleModes) {
  struct Case {
    const char* name;
    float amax;
    int floor, ceil, even;  // exponents
  };
  // emax: mxfp4 2, mxfp6_e3m2 4, mxfp6_e2m3 2, mxfp8_e4m3 8, mxfp8_e5m2 15, mxint8 0. `even` goes up where amax's
  // fraction reaches 2 - half a unit of the element's mantissa: 1.75 for mxfp4, 1.875 for two mantissa bits.
  const Case cases[] = {
      {"mxfp4", 1.0f, -2, -2, -2},
      {"mxfp4", 6.0f, 0, 1, 0},
      {"mxfp4", 6.9999995f, 0, 1, 0},
      {"mxfp4", 7.0f, 0, 1, 1},
      {"mxfp4", 8.0f, 1, 1, 1},
      {"mxfp4", 0.3f, -4, -3, -4},
      {"mxfp6_e3m2", 28.0f, 0, 1, 0},
      {"mxfp6_e3m2", 30.0f, 0, 1, 1},
      {"mxfp6_e3m2", 29.9f, 0, 1, 0},
      {"mxfp6_e2m3", 7.5f, 0, 1, 0},
      {"mxfp6_e2m3", 7.75f, 0, 1, 1},
      {"mxfp8_e4m3", 448.0f, 0, 1, 0},
      {"mxfp8_e4m3", 480.0f, 0, 1, 0},
      {"mxfp8_e4m3", 496.0f, 0, 1, 1},
      {"mxfp8_e5m2", 57344.0f, 0, 1, 0},
      {"mxfp8_e5m2", 61440.0f, 0, 1, 1},
      {"mxint8", 1.0f, 0, 0, 0},
      {"mxint8", 1.984375f, 0, 1, 0},
      {"mxint8", 1.9921875f, 0, 1, 1},
      {"mxint8", std::numeric_limits<float>::max(), 127, 127, 127},
      {"mxfp4", std::numeric_limits<float>::max(), 125, 126, 126},
      {"mxfp4", 0.0f, -127, -127, -127},
      {"mxfp4", 0x1p-149f, -127, -127, -127},
      {"mxint8", 0x1p-126f, -126, -126, -126},
      {"mxint8", 0x1.8p-127f, -127, -126, -127},
      {"mxint8", 0x1p-127f, -127, -127, -127},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(scale_code(c.name, c.amax, BlockScaleMode::Floor), c.floor + 127u) << c.name << " floor " << c.amax;
    EXPECT_EQ(scale_code(c.name, c.amax, BlockScaleMode::Ceil), c.ceil + 127u) << c.name << " ceil " << c.amax;
    EXPECT_EQ(scale_code(c.name, c.amax, BlockScaleMode::Even), c.even + 127u) << c.name << " even " << c.amax;
  }
}

TEST(Reference, BlocksByHand) {
  const int64_t shape[] = {4};
  std::vector<float> out(4);
  // mxfp4: amax 5 -> scale 2^0; 5 is a tie of 4 and 6 and goes to the even 4.
  reference::fake_quantize_blocks(std::vector<float>{5.0f, -0.25f, 0.75f, -3.5f}, out, format("mxfp4"), shape, 0);
  EXPECT_EQ(out, (std::vector<float>{4, -0.0f, 1, -4}));
  // mxint8: amax 1.5 -> scale 1, steps of 1/64.
  reference::fake_quantize_blocks(std::vector<float>{1.5f, 0.01f, -1.0f, 1 / 128.0f}, out, format("mxint8"), shape, 0);
  EXPECT_EQ(out, (std::vector<float>{1.5f, 1 / 64.0f, -1, 0}));
  // bfp16: amax 1 -> scale 2^-6; 127.6/64 would round to 128, so its block takes 2^-5.
  reference::fake_quantize_blocks(std::vector<float>{1, 0.51f / 64, 0, -1}, out, format("bfp16"), shape, 0);
  EXPECT_EQ(out, (std::vector<float>{1, 1 / 64.0f, 0, -1}));
  reference::fake_quantize_blocks(std::vector<float>{127.6f / 64, 0.51f / 64, 0, 0}, out, format("bfp16"), shape, 0);
  EXPECT_EQ(out, (std::vector<float>{2, 0, 0, 0}));
  // -127.6 rounds to -128, which int8 holds: no widening.
  reference::fake_quantize_blocks(std::vector<float>{-127.6f / 64, 0.51f / 64, 0, 0}, out, format("bfp16"), shape, 0);
  EXPECT_EQ(out, (std::vector<float>{-2, 1 / 64.0f, 0, 0}));
  // nvfp4: g = 2688/6 = 448, block scale E4M3(448 · 6 / 6) = 448.
  const BlockTensor tensor =
      reference::quantize_blocks(std::vector<float>{6, 3, -1.5f, 0.26f}, format("nvfp4"), shape, 0);
  EXPECT_EQ(tensor.global_scale, 448.0f);
  EXPECT_EQ(static_cast<int>(tensor.scales[0]), 0x7e);
  reference::dequantize_blocks(tensor, out, format("nvfp4"));
  EXPECT_EQ(out, (std::vector<float>{6, 3, -1.5f, 0.5f}));
}

TEST(Reference, NonFiniteElementsDoNotSpoilTheirBlock) {
  const int64_t shape[] = {4};
  std::vector<float> out(4);
  for (const auto& [name, f] : formats().items()) {
    if (f.kind != FormatKind::Block) continue;
    reference::fake_quantize_blocks(std::vector<float>{1, kInf, kNan, -kInf}, out, f, shape, 0);
    EXPECT_EQ(out[0], 1.0f) << name;
    EXPECT_TRUE(std::isfinite(out[1]) && out[1] >= 1) << name;
    EXPECT_TRUE(std::isfinite(out[3]) && out[3] <= -1) << name;
    if (format(f.element).kind == FormatKind::Float && format(f.element).specials != FloatSpecials::Finite) {
      EXPECT_TRUE(std::isnan(out[2])) << name;
    } else {
      EXPECT_EQ(out[2], 0.0f) << name;
    }
  }
}

}  // namespace
}  // namespace kaon
