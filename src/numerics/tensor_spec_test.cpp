#include "numerics/tensor_spec.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace kaon {
namespace {

using Floats = std::vector<float>;
using Shape = std::vector<int64_t>;

Floats wave(int64_t count) {
  Floats values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i) * 0.7F) * (1.0F + 0.1F * i);
  return values;
}

TEST(TensorSpec, TilingFollowsGranularity) {
  const Shape shape{4, 6};
  const auto tile = [&](Granularity granularity, int64_t axis = 0) {
    return tiling_of({.granularity = granularity, .axis = axis, .group_size = 3}, shape).tile;
  };
  EXPECT_EQ(tile(Granularity::PerTensor), (Shape{4, 6}));
  EXPECT_EQ(tile(Granularity::PerChannel, 1), (Shape{4, 1}));
  EXPECT_EQ(tile(Granularity::PerGroup, -1), (Shape{1, 3}));
  EXPECT_EQ(tile(Granularity::PerBlock), (Shape{3, 3}));
  EXPECT_EQ(tile(Granularity::PerToken), (Shape{1, 6}));
  EXPECT_THROW(tile(Granularity::PerChannel, 2), Error);
}

TEST(TensorSpec, ParamsFromTheDataEqualThoseOfScale) {
  const Floats in = wave(24);
  const Shape shape{4, 6};
  for (const bool symmetric : {true, false}) {
    const TensorSpec spec{.format = "int8",
                          .granularity = Granularity::PerChannel,
                          .axis = 1,
                          .symmetric = symmetric,
                          .scale_type = ScaleType::PowerOfTwo};
    const QuantParams expected =
        choose_params(in, Tiling::per_channel(shape, 1), format("int8"),
                      symmetric ? Symmetry::Symmetric : Symmetry::Asymmetric, ScaleType::PowerOfTwo);
    const QuantParams got = choose_params(in, shape, spec);
    EXPECT_EQ(got.scale, expected.scale);
    EXPECT_EQ(got.zero_point, expected.zero_point);
    Floats out(24), reference(24);
    fake_quantize(in, out, shape, spec);
    fake_quantize(in, reference, format("int8"), expected);
    EXPECT_EQ(out, reference);
  }
}

TEST(TensorSpec, CastsHaveNoScaleOfTheirOwn) {
  const Floats in{1.0F, 3.14159265F, 1e-3F, 70000};
  for (const char* name : {"float16", "bfloat16"}) {
    EXPECT_TRUE(is_cast(format(name)));
    const TensorSpec spec{.format = name, .granularity = Granularity::PerToken, .symmetric = false};
    const QuantParams params = choose_params(in, Shape{2, 2}, spec);
    EXPECT_EQ(params.scale, Floats{1.0F});
    EXPECT_TRUE(params.zero_point.empty());
  }
  Floats out(4);
  fake_quantize(in, out, Shape{2, 2}, {.format = "float16"});
  EXPECT_EQ(out, (Floats{1.0F, 3.140625F, 0.00100040435791015625F, 65504}));
  EXPECT_FALSE(is_cast(format("fp8_e4m3")));
  EXPECT_FALSE(is_cast(format("int16")));
}

TEST(TensorSpec, BlocksRunAlongTheAxis) {
  const Floats in = wave(64 * 3);
  const Shape shape{64, 3};
  for (const int64_t axis : {0, 1}) {
    for (const BlockScaleMode mode : {BlockScaleMode::Even, BlockScaleMode::Floor}) {
      const TensorSpec spec{.format = "mxfp4", .axis = axis, .block_scale = mode};
      EXPECT_TRUE(has_own_scales(spec));
      Floats out(in.size()), expected(in.size());
      fake_quantize(in, out, shape, spec);
      fake_quantize_blocks(in, expected, format("mxfp4"), shape, axis, {.scale_mode = mode});
      EXPECT_EQ(out, expected);
    }
  }
  EXPECT_FALSE(has_own_scales({.format = "int4", .granularity = Granularity::PerGroup}));
}

TEST(TensorSpec, ScalesAreLearnedUnlessTheFormatHasItsOwnOrNone) {
  for (const std::string name : {"int8", "uint4", "fp8_e4m3"}) EXPECT_TRUE(learns_scales(format(name))) << name;
  for (const std::string name : {"mxfp4", "nvfp4", "float16", "bfloat16"})
    EXPECT_FALSE(learns_scales(format(name))) << name;
}

TEST(TensorSpec, OneScaleServesEveryShape) {
  const TensorSpec spec{.format = "uint8", .symmetric = false};
  const Floats small = wave(6);
  const QuantParams params = choose_params(small, Shape{2, 3}, spec);
  Floats large = wave(20), expected(20);
  fake_quantize(large, expected, format("uint8"), {Tiling::per_tensor(Shape{20}), params.scale, params.zero_point});
  fake_quantize(large, large, Shape{4, 5}, spec, params);  // in place
  EXPECT_EQ(large, expected);
}

TEST(TensorSpec, RoundingIsHandedOn) {
  const Floats in{0.5F, 1.5F, -0.5F};
  const QuantParams params{Tiling::per_tensor(Shape{3}), {1}, {}};
  const auto run = [&](Rounding rounding) {
    Floats out(3);
    fake_quantize(in, out, Shape{3}, {.rounding = rounding}, params);
    return out;
  };
  EXPECT_EQ(run(Rounding::HalfEven), (Floats{0, 2, 0}));
  EXPECT_EQ(run(Rounding::HalfAway), (Floats{1, 2, -1}));
  EXPECT_EQ(run(Rounding::Floor), (Floats{0, 1, -1}));
  EXPECT_EQ(run(Rounding::Ceil), (Floats{1, 2, 0}));
}

TEST(TensorSpec, NamesAreDistinctAndComeBack) {
  const auto check = []<typename E>(E) {
    for (const auto& [name, value] : EnumNames<E>::kAll) {
      EXPECT_EQ(enum_name(value), name);
      EXPECT_EQ(enum_value<E>(name, "here"), value);
    }
    EXPECT_THROW(enum_value<E>("nonsense", "here"), Error);
  };
  check(Granularity{});
  check(ScaleType{});
  check(Rounding{});
  check(BlockScaleMode{});
}

TEST(TensorSpec, UnknownFormatsAndWrongSizesThrow) {
  Floats out(4);
  const Floats in(4);
  EXPECT_THROW(fake_quantize(in, out, Shape{4}, {.format = "int9"}), Error);
  EXPECT_THROW(fake_quantize(in, out, Shape{5}, {}), Error);
  const Tiling whole = Tiling::per_tensor(Shape{4});
  EXPECT_THROW(fake_quantize(in, out, Shape{4}, {}, {whole, {0.0F}, {}}), Error);
  EXPECT_THROW(fake_quantize(in, out, Shape{4}, {.format = "mxfp4"}, {whole, {1.0F}, {}}), Error);
}

}  // namespace
}  // namespace kaon
