#include "numerics/scale.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>
#include <random>

#include "base/error.h"

namespace kaon {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr Symmetry kSymmetries[] = {Symmetry::Symmetric, Symmetry::Asymmetric};
constexpr ScaleType kTypes[] = {ScaleType::Float32,    ScaleType::Float16, ScaleType::BFloat16,
                                ScaleType::PowerOfTwo, ScaleType::E8M0,    ScaleType::E4M3};

void expect(ScaleZero got, float scale, int32_t zero_point, const char* what) {
  EXPECT_EQ(got.scale, scale) << what;
  EXPECT_EQ(got.zero_point, zero_point) << what;
}

TEST(ChooseScale, Symmetric) {
  constexpr Symmetry symmetry = Symmetry::Symmetric;
  expect(choose_scale({-3, 2}, format("int8"), symmetry), 3.0f / 127, 0, "int8");
  expect(choose_scale({-3, 2}, format("int4"), symmetry), 3.0f / 7, 0, "int4");
  expect(choose_scale({-3, 2}, format("int2"), symmetry), 3.0f, 0, "int2");
  expect(choose_scale({-3, 2}, format("int16"), symmetry), 3.0f / 32767, 0, "int16");
  expect(choose_scale({-3, 2}, format("uint8"), symmetry), 3.0f / 127, 128, "uint8");
  expect(choose_scale({-3, 2}, format("uint4"), symmetry), 3.0f / 7, 8, "uint4");
  expect(choose_scale({-3, 2}, format("fp8_e4m3"), symmetry), 3.0f / 448, 0, "fp8");
  expect(choose_scale({-3, 2}, without_lowest(format("int8")), symmetry), 3.0f / 127, 0, "strict int8");
}

TEST(ChooseScale, Asymmetric) {
  expect(choose_scale({-1, 3}, format("uint8"), Symmetry::Asymmetric), 4.0f / 255, 64, "uint8");
  expect(choose_scale({-1, 3}, format("int8"), Symmetry::Asymmetric), 4.0f / 255, -64, "int8");
  expect(choose_scale({1, 3}, format("uint8"), Symmetry::Asymmetric), 3.0f / 255, 0, "widened down to 0");
  expect(choose_scale({-3, -1}, format("uint8"), Symmetry::Asymmetric), 3.0f / 255, 255, "widened up to 0");
  expect(choose_scale({-1, 3}, format("uint4"), Symmetry::Asymmetric), 4.0f / 15, 4, "3.75 rounds to 4");
  expect(choose_scale({-1, 2}, format("fp8_e5m2"), Symmetry::Asymmetric), 2.0f / 57344, 0, "floats are symmetric");
}

TEST(ChooseScale, Uint8AsymmetricIsDynamicQuantizeLinear) {
  // The ranges of the standard's three examples.
  expect(choose_scale({-3, 2}, format("uint8"), Symmetry::Asymmetric), 0.0196078438f, 153, "around zero");
  expect(choose_scale({-4, -1}, format("uint8"), Symmetry::Asymmetric), 0.0156862754f, 255, "max adjusted");
  expect(choose_scale({1, 4}, format("uint8"), Symmetry::Asymmetric), 0.0156862754f, 0, "min adjusted");
  std::mt19937 generator(1);
  std::normal_distribution<float> normal(0, 5);
  for (int i = 0; i < 100000; ++i) {
    float low = normal(generator), high = normal(generator);
    if (low > high) std::swap(low, high);
    const float min = std::min(low, 0.0f), max = std::max(high, 0.0f);
    const float scale = (max - min) / 255.0f;
    const float zero_point = std::nearbyint(std::min(255.0f, std::max(0.0f, 0.0f - min / scale)));
    const ScaleZero got = choose_scale({low, high}, format("uint8"), Symmetry::Asymmetric);
    ASSERT_EQ(got.scale, scale);
    ASSERT_EQ(got.zero_point, static_cast<int32_t>(zero_point));
  }
}

TEST(ChooseScale, DegenerateRanges) {
  const Format& u8 = format("uint8");
  const Format& i8 = format("int8");
  expect(choose_scale({0, 0}, i8, Symmetry::Symmetric), 1, 0, "all zero");
  expect(choose_scale({-0.0f, 0}, i8, Symmetry::Asymmetric), 1, 0, "all zero");
  expect(choose_scale({0, 0}, u8, Symmetry::Asymmetric), 1, 0, "all zero");
  expect(choose_scale({0, 0}, u8, Symmetry::Symmetric), 1, 128, "all zero, middle of an unsigned format");
  expect(choose_scale({5, 5}, u8, Symmetry::Asymmetric), 5.0f / 255, 0, "one value");
  expect(choose_scale({3, -1}, u8, Symmetry::Asymmetric), 4.0f / 255, 64, "exchanged");
  expect(choose_scale({kNan, 2}, i8, Symmetry::Symmetric), 2.0f / 127, 0, "NaN counts as 0");
  expect(choose_scale({kNan, kNan}, i8, Symmetry::Asymmetric), 1, 0, "nothing but NaN");
  expect(choose_scale({-kInf, 1}, i8, Symmetry::Symmetric), FLT_MAX / 127, 0, "Inf counts as FLT_MAX");
  expect(choose_scale({0, 1e-44f}, i8, Symmetry::Symmetric), FLT_MIN, 0, "subnormal");
  const ScaleZero widest = choose_scale({-kInf, kInf}, u8, Symmetry::Asymmetric);
  EXPECT_EQ(widest.scale, static_cast<float>(2.0 * FLT_MAX / 255));
  EXPECT_EQ(widest.zero_point, 128) << "127.5 rounds to the even 128";
}

TEST(ChooseScale, AlwaysUsable) {
  const float bounds[] = {0.0f,     -0.0f, 1.0f,  -1.0f, 0x1p-149f, -0x1p-149f, FLT_MIN, FLT_MAX,
                          -FLT_MAX, kInf,  -kInf, kNan,  1e-30f,    65504.0f,   -3e38f,  0.1f};
  for (const auto& [name, f] : formats().items()) {
    if (f.kind == FormatKind::Block) continue;
    for (const float low : bounds) {
      for (const float high : bounds) {
        for (const Symmetry symmetry : kSymmetries) {
          for (const ScaleType type : kTypes) {
            const ScaleZero got = choose_scale({low, high}, f, symmetry, type);
            ASSERT_TRUE(std::isfinite(got.scale) && got.scale > 0) << name << " " << low << " " << high;
            ASSERT_EQ(got.scale, round_scale(got.scale, type)) << name << " " << low << " " << high;
            if (f.kind == FormatKind::Float) {
              ASSERT_EQ(got.zero_point, 0);
            } else {
              ASSERT_GE(got.zero_point, f.integer_min());
              ASSERT_LE(got.zero_point, f.integer_max());
            }
          }
        }
      }
    }
  }
}

TEST(RoundScale, ByHand) {
  EXPECT_EQ(round_scale(0.1f, ScaleType::Float32), 0.1f);
  EXPECT_EQ(round_scale(0.1f, ScaleType::PowerOfTwo), 0.125f);
  EXPECT_EQ(round_scale(0.125f, ScaleType::PowerOfTwo), 0.125f);
  EXPECT_EQ(round_scale(std::nextafter(0.125f, 1.0f), ScaleType::PowerOfTwo), 0.25f);
  EXPECT_EQ(round_scale(3.0f, ScaleType::E8M0), 4.0f);
  EXPECT_EQ(round_scale(0x1p-140f, ScaleType::PowerOfTwo), 0x1p-140f);
  EXPECT_EQ(round_scale(0x1p-140f, ScaleType::E8M0), 0x1p-127f);
  EXPECT_EQ(round_scale(FLT_MAX, ScaleType::PowerOfTwo), 0x1p127f);
  EXPECT_EQ(round_scale(0.1f, ScaleType::Float16), 0.0999755859375f);
  EXPECT_EQ(round_scale(1e-9f, ScaleType::Float16), 0x1p-24f);
  EXPECT_EQ(round_scale(1e9f, ScaleType::Float16), 65504.0f);
  EXPECT_EQ(round_scale(1.01f, ScaleType::BFloat16), 1.0078125f);
  EXPECT_EQ(round_scale(FLT_MAX, ScaleType::BFloat16), 0x1.fep127f);
  EXPECT_EQ(round_scale(1.05f, ScaleType::E4M3), 1.0f);
  EXPECT_EQ(round_scale(1.0625f, ScaleType::E4M3), 1.0f) << "a tie goes to the even mantissa";
  EXPECT_EQ(round_scale(1e-5f, ScaleType::E4M3), 0x1p-9f);
  EXPECT_EQ(round_scale(1000.0f, ScaleType::E4M3), 448.0f);
  for (const float bad : {0.0f, -1.0f, kNan, kInf}) {
    EXPECT_THROW(round_scale(bad, ScaleType::Float16), Error) << bad;
  }
}

TEST(ChooseScale, BlockFormatsAreRefused) {
  try {
    choose_scale({0, 1}, format("mxfp4"), Symmetry::Symmetric);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.where(), "format");
  }
}

TEST(ChooseParams, OneForEachTile) {
  const std::vector<int64_t> shape = {2, 3};
  const std::vector<float> x = {-1, 0, 3, 0, 0, 0};
  const QuantParams rows = choose_params(x, Tiling::per_token(shape), format("uint8"), Symmetry::Asymmetric);
  EXPECT_EQ(rows.scale, (std::vector<float>{4.0f / 255, 1}));
  EXPECT_EQ(rows.zero_point, (std::vector<int32_t>{64, 0}));
  const QuantParams columns = choose_params(x, Tiling::per_channel(shape, 1), format("int8"), Symmetry::Symmetric);
  EXPECT_EQ(columns.scale, (std::vector<float>{1.0f / 127, 1, 3.0f / 127}));
  EXPECT_TRUE(columns.zero_point.empty()) << "all of them are 0";
  EXPECT_THROW(choose_params(x, Tiling::per_token(std::vector<int64_t>{2, 2}), format("int8"), Symmetry::Symmetric),
               Error);
}

}  // namespace
}  // namespace kaon
