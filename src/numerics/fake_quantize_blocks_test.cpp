#include <gtest/gtest.h>

#include "base/error.h"
#include "base/parallel.h"
#include "numerics/fake_quantize_job.h"
#include "numerics/kernel_test_data.h"
#include "numerics/quantize.h"
#include "numerics/reference.h"
#include "numerics/test_targets-inl.h"

namespace kaon {

namespace {

std::vector<const Format*> block_formats() {
  std::vector<const Format*> found;
  for (const auto& [name, format] : formats().items()) {
    if (format.kind == FormatKind::Block) found.push_back(&format);
  }
  return found;
}

struct Grouping {
  std::vector<int64_t> shape;
  int64_t axis;
};

/// Blocks along the last axis and across it, whole and short, single rows, vectors with a tail.
const std::vector<Grouping> kGroupings{
    {{6, 96}, 1}, {{6, 96}, 0}, {{3, 77}, 1}, {{77, 3}, 0},   {{5, 33, 19}, 1},  {{2, 3, 40}, -1}, {{40, 1}, 0},
    {{1, 7}, 1},  {{0, 32}, 1}, {{32, 0}, 0}, {{35, 530}, 0}, {{1, 8, 4, 4}, 1}, {{2, 1}, 1}};

std::string describe(const Format& format, const QuantizeOptions& options, const Grouping& grouping) {
  return fmt::format("{} rounding {} mode {} shape [{}] axis {}", format.name, static_cast<int>(options.rounding),
                     static_cast<int>(options.scale_mode), fmt::join(grouping.shape, ","), grouping.axis);
}

int64_t count_of(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

/// Blocks from subnormal to huge, of zeros, with NaN and Inf, and with amax near a power of two.
std::vector<float> block_values(int64_t count, uint32_t seed) {
  std::vector<float> values = normal_values(count, 1, seed);
  std::mt19937 random(seed);
  constexpr int kExponents[] = {0, 0, 0, -3, 5, -126, -131, -145, -127, 100, 124, 60, -60};
  for (int64_t i = 0; i < count; ++i) {
    values[i] = std::ldexp(values[i], kExponents[i / 29 % std::ssize(kExponents)]);
    switch (random() % 40) {
      case 0: values[i] = 0; break;
      case 1: values[i] = -0.0f; break;
      case 2: values[i] = std::ldexp(1.0f, static_cast<int>(i / 29 % 7)); break;
      case 3: values[i] = std::nextafter(std::ldexp(1.0f, static_cast<int>(i / 29 % 7)), 0.0f); break;
      case 4: values[i] = std::ldexp(127.5f, static_cast<int>(i / 29 % 3) - 6); break;
      case 5: values[i] = -std::ldexp(127.75f, static_cast<int>(i / 29 % 3) - 6); break;
      case 6: values[i] = random() % 4 == 0 ? NAN : values[i]; break;
      case 7: values[i] = random() % 4 == 0 ? INFINITY : values[i]; break;
      case 8: values[i] = random() % 4 == 0 ? -INFINITY : values[i]; break;
      default: break;
    }
    if (i / 29 % 11 == 10) values[i] = std::copysign(0.0f, values[i]);
  }
  return values;
}

std::vector<QuantizeOptions> all_options(const Format& format) {
  std::vector<QuantizeOptions> all;
  for (const Rounding rounding : kRoundings) {
    for (const BlockScaleMode mode : {BlockScaleMode::Even, BlockScaleMode::Floor, BlockScaleMode::Ceil}) {
      all.push_back({.rounding = rounding, .seed = 99, .scale_mode = mode});
    }
  }
  return all;
}

void check(const std::vector<float>& in, const Format& format, const Grouping& grouping, const QuantizeOptions& options,
           float global_amax, size_t offset) {
  std::vector<float> expected(in.size());
  reference::fake_quantize_blocks(in, expected, format, grouping.shape, grouping.axis, options, global_amax);
  for_each_simd_target([&] {
    constexpr float kGuard = 123.456f;
    std::vector<float> from(in.size() + 32), to(in.size() + 32, kGuard);
    std::copy(in.begin(), in.end(), from.begin() + static_cast<ptrdiff_t>(offset));
    const std::span<float> source(from.data() + offset, in.size());
    const std::span<float> target(to.data() + 16 - offset, in.size());
    fake_quantize_blocks(source, target, format, grouping.shape, grouping.axis, options, global_amax);
    ASSERT_TRUE(same_values(target.data(), expected, in));
    for (size_t i = 0; i < 16 - offset; ++i) ASSERT_EQ(to[i], kGuard) << i;
    for (size_t i = 16 - offset + in.size(); i < to.size(); ++i) ASSERT_EQ(to[i], kGuard) << i;
    fake_quantize_blocks(source, source, format, grouping.shape, grouping.axis, options, global_amax);
    ASSERT_TRUE(same_values(source.data(), expected, in)) << "in place";
  });
}

TEST(FakeQuantizeBlocks, EveryTargetIsExact) {
  for (const Format* format : block_formats()) {
    for (const QuantizeOptions& options : all_options(*format)) {
      for (const Grouping& grouping : kGroupings) {
        SCOPED_TRACE(describe(*format, options, grouping));
        const std::vector<float> in = block_values(count_of(grouping.shape), 17);
        check(in, *format, grouping, options, -1, 1);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(FakeQuantizeBlocks, OrdinaryValuesAndGivenGlobalAmax) {
  for (const Format* format : block_formats()) {
    for (const Grouping& grouping : kGroupings) {
      SCOPED_TRACE(describe(*format, {}, grouping));
      const std::vector<float> in = normal_values(count_of(grouping.shape), 0.02f, 4);
      for (const float global_amax : {-1.0f, 0.0f, 0.03f, 5.0f}) {
        check(in, *format, grouping, {}, global_amax, 0);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(FakeQuantizeBlocks, EverySixteenBitInput) {
  std::vector<uint16_t> halves(1 << 16);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i * 40503u);  // odd: every value once
  for (const FloatView::Type type : {FloatView::Type::Float16, FloatView::Type::BFloat16}) {
    const FloatView in(halves.data(), std::ssize(halves), type);
    for (const Format* format : block_formats()) {
      for (const int64_t axis : {0, 1}) {
        const Grouping grouping{{256, 256}, axis};
        SCOPED_TRACE(describe(*format, {}, grouping));
        std::vector<float> expected(halves.size());
        reference::fake_quantize_blocks(in, expected, *format, grouping.shape, axis);
        for_each_simd_target([&] {
          std::vector<float> out(halves.size());
          fake_quantize_blocks(in, out, *format, grouping.shape, axis);
          ASSERT_TRUE(same_values(out.data(), expected, [&](size_t i) { return in.at(static_cast<int64_t>(i)); }));
        });
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(FakeQuantizeBlocks, ThreadsChangeNothing) {
  const int threads = thread_count();
  for (const Format* format : block_formats()) {
    for (const Grouping& grouping : {Grouping{{401, 1003}, 1}, Grouping{{401, 1003}, 0}, Grouping{{33, 10007}, 0}}) {
      const std::vector<float> in = block_values(count_of(grouping.shape), 3);
      for (const Rounding rounding : {Rounding::HalfEven, Rounding::Stochastic}) {
        std::vector<std::vector<float>> results;
        for (const int count : {1, 2, 3}) {
          set_thread_count(count);
          results.emplace_back(in.size());
          fake_quantize_blocks(in, results.back(), *format, grouping.shape, grouping.axis, {rounding});
        }
        set_thread_count(threads);
        ASSERT_TRUE(same_values(results[1].data(), results[0], in)) << format->name;
        ASSERT_TRUE(same_values(results[2].data(), results[0], in)) << format->name;
      }
    }
  }
}

TEST(FakeQuantizeBlocks, StreamedOutputEqualsPlain) {
  int64_t rows = 1024;
  const float first = 0;  // only the address and the size count
  while (!worth_streaming({}, std::span(&first, static_cast<size_t>(rows * 1000)))) rows *= 2;
  std::vector<float> in = normal_values(1 << 16, 3, 8);
  in.resize(static_cast<size_t>(rows * 1000));
  for (size_t i = 1 << 16; i < in.size(); ++i) in[i] = in[i - 65521] * 1.0001f;
  std::vector<float> out(in.size() + 3);
  for (const char* name : {"mxfp4", "nvfp4"}) {
    for (const int64_t axis : {0, 1}) {
      const std::vector<int64_t> shape{rows, 1000};
      const std::span<float> target(out.data() + 3, in.size());
      ASSERT_TRUE(worth_streaming(in, target));
      fake_quantize_blocks(in, target, format(name), shape, axis);
      std::vector<float> plain = in;
      fake_quantize_blocks(plain, plain, format(name), shape, axis);
      ASSERT_TRUE(same_values(target.data(), plain, in)) << name;
    }
  }
}

TEST(FakeQuantizeBlocks, BadParametersAreNamed) {
  const std::vector<float> in(64, 1.0f);
  std::vector<float> out(64);
  const auto where = [&](const char* name, std::vector<int64_t> shape, int64_t axis, size_t out_size,
                         float global_amax) -> std::string {
    try {
      fake_quantize_blocks(in, std::span(out).first(out_size), format(name), shape, axis, {}, global_amax);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::InvalidInput);
      return error.where();
    }
    return "nothing thrown";
  };
  EXPECT_EQ(where("mxfp4", {2, 32}, 1, 64, -1), "nothing thrown");
  EXPECT_EQ(where("mxfp4", {2, 32}, 2, 64, -1), "axis");
  EXPECT_EQ(where("mxfp4", {2, 31}, 1, 64, -1), "in");
  EXPECT_EQ(where("mxfp4", {2, 32}, 1, 63, -1), "out");
  EXPECT_EQ(where("int8", {2, 32}, 1, 64, -1), "format");
  EXPECT_EQ(where("nvfp4", {2, 32}, 1, 64, INFINITY), "global_amax");
}

}  // namespace

}  // namespace kaon
