#include "numerics/quantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "base/error.h"
#include "base/parallel.h"
#include "numerics/bad_parameter_test.h"
#include "numerics/half.h"
#include "numerics/reference.h"

namespace kaon {
namespace {

using Sizes = std::vector<int64_t>;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr Rounding kRoundings[] = {Rounding::HalfEven, Rounding::HalfAway, Rounding::Floor, Rounding::Ceil,
                                   Rounding::Stochastic};

/// Numbers of every size, many of them ties at the scales used here, with the odd special value.
std::vector<float> numbers(int64_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, 3);
  std::uniform_int_distribution<int> kind(0, 19);
  const float special[] = {0.0f, -0.0f, kInf, -kInf, kNan, 0x1p-149f, -0x1p-140f, 3e38f, -1e-30f, 1e20f};
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    const int k = kind(generator);
    value = normal(generator);
    if (k < 8) value = std::round(value * 4) / 4;
    if (k == 8) value *= 1000;
    if (k == 9) value = special[generator() % std::size(special)];
  }
  return values;
}

/// All 2^16 float16 values.
std::vector<float> halves() {
  std::vector<float> values(0x10000);
  for (uint32_t bits = 0; bits < values.size(); ++bits) values[bits] = float16_to_float32(static_cast<uint16_t>(bits));
  return values;
}

QuantParams some_params(const Tiling& tiling, const Format& f, bool zero_points, uint32_t seed) {
  std::mt19937 generator(seed);
  const float scales[] = {1.0f, 0.5f, 0.1f, 0.25f, 3.0f};
  QuantParams params{tiling, {}, {}};
  for (int64_t i = 0; i < tiling.tile_count(); ++i) {
    params.scale.push_back(scales[generator() % std::size(scales)]);
    if (!zero_points) continue;
    std::uniform_int_distribution<int64_t> zero_point(f.integer_min(), f.integer_max());
    params.zero_point.push_back(static_cast<int32_t>(zero_point(generator)));
  }
  return params;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i])) return false;
  }
  return a.size() == b.size();
}

void check_against_reference(FloatView in, const Format& f, const QuantParams& params, const QuantizeOptions& options) {
  SCOPED_TRACE(f.name + ", rounding " + std::to_string(static_cast<int>(options.rounding)));
  std::vector<std::byte> codes(static_cast<size_t>(in.size * f.code_bytes())), expected(codes.size());
  quantize(in, codes, f, params, options);
  reference::quantize(in, expected, f, params, options);
  ASSERT_EQ(codes, expected);
  std::vector<float> values(static_cast<size_t>(in.size)), expected_values(values.size());
  dequantize(codes, values, f, params);
  reference::dequantize(codes, expected_values, f, params);
  ASSERT_TRUE(same_bits(values, expected_values));
  fake_quantize(in, values, f, params, options);
  ASSERT_TRUE(same_bits(values, expected_values)) << "fake_quantize";
}

TEST(Quantize, EveryFloat16InputInEveryFormat) {
  const std::vector<float> values = halves();
  const Tiling whole = Tiling::per_tensor(Sizes{std::ssize(values)});
  for (const auto& [name, f] : formats().items()) {
    if (f.kind == FormatKind::Block) continue;
    for (const Rounding rounding : kRoundings) {
      check_against_reference(values, f, {whole, {1.0f}, {}}, {.rounding = rounding, .seed = 3});
      check_against_reference(values, f, {whole, {0.1f}, {}}, {.rounding = rounding, .seed = 3});
      if (f.kind == FormatKind::Integer) continue;
      check_against_reference(values, f, {whole, {0.1f}, {}}, {.rounding = rounding, .saturate = false, .seed = 3});
    }
  }
}

TEST(Quantize, EveryTilingWithAndWithoutZeroPoints) {
  const Sizes shape = {5, 7, 9};
  const Tiling tilings[] = {
      Tiling::per_tensor(shape),      Tiling::per_channel(shape, 0),  Tiling::per_channel(shape, 1),
      Tiling::per_channel(shape, 2),  Tiling::per_group(shape, 2, 4), Tiling::per_group(shape, 1, 3),
      Tiling::per_group(shape, 0, 2), Tiling::per_block(shape, 3, 4), Tiling::per_token(shape)};
  const std::vector<float> values = numbers(5 * 7 * 9, 1);
  for (const auto& [name, f] : formats().items()) {
    if (f.kind == FormatKind::Block) continue;
    for (const Tiling& tiling : tilings) {
      for (const Rounding rounding : kRoundings) {
        const QuantizeOptions options{.rounding = rounding, .seed = 11};
        check_against_reference(values, f, some_params(tiling, f, false, 2), options);
        if (f.kind != FormatKind::Integer) continue;
        check_against_reference(values, f, some_params(tiling, f, true, 3), options);
        check_against_reference(values, without_lowest(f), some_params(tiling, f, false, 4), options);
      }
    }
  }
}

TEST(Quantize, OddSizesAnd16BitInputs) {
  for (const int64_t size : {0, 1, 7, 1023, 1025, 3000}) {
    const std::vector<float> values = numbers(size, 5);
    std::vector<uint16_t> half, brain;
    for (const float value : values) {
      half.push_back(float32_to_float16(value));
      brain.push_back(float32_to_bfloat16(value));
    }
    const Tiling tiling = Tiling::per_group(Sizes{size}, 0, 32);
    for (const char* name : {"int4", "uint8", "int16", "int32", "fp8_e4m3", "bfloat16"}) {
      const QuantParams params = some_params(tiling, format(name), false, 6);
      check_against_reference(values, format(name), params, {});
      check_against_reference({half.data(), size, FloatView::Type::Float16}, format(name), params, {});
      check_against_reference({brain.data(), size, FloatView::Type::BFloat16}, format(name), params, {});
    }
  }
}

TEST(Quantize, ThreadsChangeNothing) {
  const Sizes shape = {700, 451};
  const std::vector<float> values = numbers(700 * 451, 8);
  const int before = thread_count();
  for (const auto& [name, f] : formats().items()) {
    const QuantizeOptions options{.rounding = Rounding::Stochastic, .seed = 1};
    std::vector<std::vector<std::byte>> results;
    for (const int threads : {1, 3}) {
      set_thread_count(threads);
      if (f.kind == FormatKind::Block) {
        const BlockTensor tensor = quantize_blocks(values, f, shape, 1, options);
        results.push_back(tensor.codes);
        results.back().insert(results.back().end(), tensor.scales.begin(), tensor.scales.end());
      } else {
        results.emplace_back(values.size() * f.code_bytes());
        quantize(values, results.back(), f, some_params(Tiling::per_channel(shape, 0), f, false, 2), options);
      }
    }
    EXPECT_EQ(results[0], results[1]) << name;
  }
  set_thread_count(before);
}

void check_blocks_against_reference(const std::vector<float>& values, const Format& f, const Sizes& shape, int64_t axis,
                                    const QuantizeOptions& options, float global_amax = -1) {
  SCOPED_TRACE(f.name + ", axis " + std::to_string(axis) + ", rounding " +
               std::to_string(static_cast<int>(options.rounding)) + ", mode " +
               std::to_string(static_cast<int>(options.scale_mode)));
  const BlockTensor tensor = quantize_blocks(values, f, shape, axis, options, global_amax);
  const BlockTensor expected = reference::quantize_blocks(values, f, shape, axis, options, global_amax);
  ASSERT_EQ(tensor.global_scale, expected.global_scale);
  ASSERT_EQ(tensor.scales, expected.scales);
  ASSERT_EQ(tensor.codes, expected.codes);
  std::vector<float> out(values.size()), expected_out(values.size());
  dequantize_blocks(tensor, out, f);
  reference::dequantize_blocks(tensor, expected_out, f);
  ASSERT_TRUE(same_bits(out, expected_out));
  fake_quantize_blocks(values, out, f, shape, axis, options, global_amax);
  ASSERT_TRUE(same_bits(out, expected_out)) << "fake_quantize_blocks";
}

TEST(QuantizeBlocks, EveryFormatAxisRoundingAndMode) {
  const Sizes shape = {3, 37, 5};
  const std::vector<float> values = numbers(3 * 37 * 5, 9);
  for (const auto& [name, f] : formats().items()) {
    if (f.kind != FormatKind::Block) continue;
    for (const int64_t axis : {0, 1, 2, -2}) {
      for (const Rounding rounding : kRoundings) {
        for (const auto mode : {BlockScaleMode::Even, BlockScaleMode::Floor, BlockScaleMode::Ceil}) {
          check_blocks_against_reference(values, f, shape, axis, {.rounding = rounding, .seed = 4, .scale_mode = mode});
        }
      }
    }
    check_blocks_against_reference(values, f, shape, 1, {}, 12.0f);
    check_blocks_against_reference(values, f, shape, 1, {}, 0.0f);
    check_blocks_against_reference({}, f, {0, 4}, 1, {});
  }
}

TEST(QuantizeBlocks, EveryFloat16Input) {
  std::vector<float> values = halves();
  for (const auto& [name, f] : formats().items()) {
    if (f.kind != FormatKind::Block) continue;
    for (const auto mode : {BlockScaleMode::Even, BlockScaleMode::Floor, BlockScaleMode::Ceil}) {
      check_blocks_against_reference(values, f, {std::ssize(values)}, 0, {.scale_mode = mode});
      // Each number with a block of its own.
      check_blocks_against_reference(values, f, {std::ssize(values), 1}, 1, {.scale_mode = mode});
    }
  }
}

TEST(QuantizeBlocks, AmaxOfEveryBinade) {
  // From the smallest subnormal to the largest number, around each power of two and each border of Even and Ceil.
  std::vector<float> values;
  for (uint32_t field = 0; field < 255; ++field) {
    for (const uint32_t mantissa :
         {0u, 1u, 0x400000u, 0x600000u, 0x6fffffu, 0x700000u, 0x77ffffu, 0x780000u, 0x7effffu, 0x7f0000u, 0x7fffffu}) {
      values.push_back(std::bit_cast<float>(field << 23 | mantissa));
      values.push_back(-values.back());
    }
  }
  for (const auto& [name, f] : formats().items()) {
    if (f.kind != FormatKind::Block) continue;
    for (const auto mode : {BlockScaleMode::Even, BlockScaleMode::Floor, BlockScaleMode::Ceil}) {
      check_blocks_against_reference(values, f, {std::ssize(values), 1}, 1, {.scale_mode = mode});
    }
  }
}

TEST(QuantizeBlocks, ATensorOfTinyOrZeroNumbers) {
  for (const auto& [name, f] : formats().items()) {
    if (f.kind != FormatKind::Block) continue;
    check_blocks_against_reference(std::vector<float>(40, 0.0f), f, {40}, 0, {});
    check_blocks_against_reference(std::vector<float>(40, 0x1p-149f), f, {40}, 0, {});
    check_blocks_against_reference(std::vector<float>(40, kNan), f, {40}, 0, {});
    check_blocks_against_reference(std::vector<float>(40, -kInf), f, {40}, 0, {});
  }
  // nvfp4: a block so far below the tensor's maximum that its scale is 0.
  std::vector<float> uneven(32, 1e-6f);
  uneven[0] = 1000;
  check_blocks_against_reference(uneven, format("nvfp4"), {32}, 0, {});
  const BlockTensor tensor = quantize_blocks(uneven, format("nvfp4"), Sizes{32}, 0);
  EXPECT_EQ(tensor.scales[1], std::byte{0});
  EXPECT_EQ(tensor.codes[20], std::byte{0});
}

TEST(Pack, RoundTripsEveryFormatAndCount) {
  std::mt19937 generator(1);
  for (const auto& [name, f] : formats().items()) {
    const Format& element = f.kind == FormatKind::Block ? format(f.element) : f;
    for (const int64_t count : {0, 1, 2, 3, 5, 7, 8, 9, 63, 1000, 200001}) {
      std::vector<std::byte> codes(static_cast<size_t>(count * f.code_bytes())), again(codes.size());
      for (int64_t i = 0; i < count; ++i) {
        uint32_t code = generator();
        if (element.bits < 32) code &= (1u << element.bits) - 1;
        if (element.kind == FormatKind::Integer) {
          code = static_cast<uint32_t>(static_cast<int64_t>(reference::decode(element, code)));
        }
        reference::store_code(codes, element, i, code);
      }
      std::vector<std::byte> packed(static_cast<size_t>(packed_bytes(f, count)));
      pack(codes, packed, f, count);
      unpack(packed, again, f, count);
      ASSERT_EQ(codes, again) << name << " " << count;
    }
  }
}

TEST(Pack, LayoutIsOnnx) {
  const auto packed = [](const char* name, std::vector<int> codes) {
    std::vector<std::byte> bytes;
    for (const int code : codes) bytes.push_back(static_cast<std::byte>(code));
    std::vector<std::byte> out(static_cast<size_t>(packed_bytes(format(name), std::ssize(codes))));
    pack(bytes, out, format(name), std::ssize(codes));
    std::vector<int> result;
    for (const std::byte byte : out) result.push_back(static_cast<int>(byte));
    return result;
  };
  EXPECT_EQ(packed("uint4", {1, 2, 3}), (std::vector<int>{0x21, 0x03}));
  EXPECT_EQ(packed("int4", {-1, -8, 7}), (std::vector<int>{0x8f, 0x07}));
  EXPECT_EQ(packed("uint2", {1, 2, 3, 0, 3}), (std::vector<int>{0b00111001, 0b11}));
  EXPECT_EQ(packed("int3", {1, 2, 3, -1}), (std::vector<int>{0b11010001, 0b1110}));
  EXPECT_EQ(packed("fp6_e3m2", {0x3f, 0x01, 0x20, 0x15}), (std::vector<int>{0x7f, 0x00, 0x56}));
}

TEST(Quantize, BadParametersAreNamed) {
  const Sizes shape = {2, 4};
  const std::vector<float> in(8, 1.0f);
  std::vector<std::byte> codes(8);
  std::vector<float> out(8);
  const Format& int8 = format("int8");
  const QuantParams good{Tiling::per_channel(shape, 0), {1, 2}, {3, 4}};
  const auto fault = [&](auto change) {
    QuantParams params = good;
    change(params);
    const std::string first = parameter_at_fault([&] { quantize(in, codes, int8, params); });
    EXPECT_EQ(first, parameter_at_fault([&] { dequantize(codes, out, int8, params); }));
    EXPECT_EQ(first, parameter_at_fault([&] { fake_quantize(in, out, int8, params); }));
    return first;
  };
  EXPECT_EQ(fault([](QuantParams&) {}), "nothing thrown");
  EXPECT_EQ(fault([](QuantParams& p) { p.scale[1] = 0; }), "scale");
  EXPECT_EQ(fault([](QuantParams& p) { p.scale[1] = -1; }), "scale");
  EXPECT_EQ(fault([](QuantParams& p) { p.scale[0] = kNan; }), "scale");
  EXPECT_EQ(fault([](QuantParams& p) { p.scale[0] = kInf; }), "scale");
  EXPECT_EQ(fault([](QuantParams& p) { p.scale.pop_back(); }), "scale");
  EXPECT_EQ(fault([](QuantParams& p) { p.zero_point.pop_back(); }), "zero_point");
  EXPECT_EQ(fault([](QuantParams& p) { p.zero_point[0] = 128; }), "zero_point");
  EXPECT_EQ(fault([](QuantParams& p) { p.tiling.tile[0] = 0; }), "tile");
  EXPECT_EQ(fault([](QuantParams& p) { p.tiling.tile.pop_back(); }), "tile");

  std::vector<float> short_in(7), short_out(7);
  std::vector<std::byte> short_codes(7);
  EXPECT_EQ(parameter_at_fault([&] { quantize(short_in, codes, int8, good); }), "in");
  EXPECT_EQ(parameter_at_fault([&] { quantize({nullptr, 8, FloatView::Type::Float16}, codes, int8, good); }), "in");
  EXPECT_EQ(parameter_at_fault([&] { quantize(in, short_codes, int8, good); }), "codes");
  EXPECT_EQ(parameter_at_fault([&] { dequantize(short_codes, out, int8, good); }), "codes");
  EXPECT_EQ(parameter_at_fault([&] { dequantize(codes, short_out, int8, good); }), "out");
  EXPECT_EQ(parameter_at_fault([&] { quantize(in, codes, format("fp8_e4m3"), good); }), "zero_point");
  EXPECT_EQ(parameter_at_fault([&] { quantize(in, codes, format("mxfp4"), good); }), "format");

  const Format& mxfp4 = format("mxfp4");
  EXPECT_EQ(parameter_at_fault([&] { quantize_blocks(in, int8, shape, 0); }), "format");
  EXPECT_EQ(parameter_at_fault([&] { quantize_blocks(in, mxfp4, shape, 2); }), "axis");
  EXPECT_EQ(parameter_at_fault([&] { quantize_blocks(short_in, mxfp4, shape, 0); }), "in");
  EXPECT_EQ(parameter_at_fault([&] { quantize_blocks(in, format("nvfp4"), shape, 0, {}, kNan); }), "global_amax");
  BlockTensor tensor = quantize_blocks(in, mxfp4, shape, -1);
  EXPECT_EQ(tensor.axis, 1);
  EXPECT_EQ(parameter_at_fault([&] { dequantize_blocks(tensor, short_out, mxfp4); }), "out");
  EXPECT_EQ(parameter_at_fault([&] { dequantize_blocks(tensor, out, int8); }), "format");
  tensor.scales.pop_back();
  EXPECT_EQ(parameter_at_fault([&] { dequantize_blocks(tensor, out, mxfp4); }), "scales");
  tensor = quantize_blocks(in, mxfp4, shape, 1);
  tensor.global_scale = 0;
  EXPECT_EQ(parameter_at_fault([&] { dequantize_blocks(tensor, out, mxfp4); }), "global_scale");

  EXPECT_EQ(parameter_at_fault([&] { pack(codes, short_codes, format("int4"), 8); }), "packed");
  EXPECT_EQ(parameter_at_fault([&] { pack(short_codes, codes, format("int4"), 8); }), "codes");
  EXPECT_EQ(parameter_at_fault([&] { unpack(codes, codes, format("int4"), -1); }), "count");
}

}  // namespace
}  // namespace kaon
