#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "base/parallel.h"
#include "numerics/fake_quantize_job.h"
#include "numerics/kernel_test_data.h"
#include "numerics/quantize.h"
#include "numerics/reference.h"
#include "numerics/test_targets-inl.h"

namespace kaon {

namespace {

std::vector<const Format*> plain_formats() {
  std::vector<const Format*> found;
  for (const auto& [name, format] : formats().items()) {
    if (format.kind != FormatKind::Block) found.push_back(&format);
  }
  return found;
}

/// Options that differ for this format: integers always saturate.
std::vector<QuantizeOptions> all_options(const Format& format) {
  std::vector<QuantizeOptions> all;
  for (const Rounding rounding : kRoundings) {
    all.push_back({.rounding = rounding, .seed = 0x123456789abcdef0});
    if (format.kind == FormatKind::Float) all.push_back({.rounding = rounding, .saturate = false, .seed = 7});
  }
  return all;
}

std::string describe(const Format& format, const QuantizeOptions& options) {
  return fmt::format("{} rounding {} saturate {}", format.name, static_cast<int>(options.rounding), options.saturate);
}

QuantParams one_scale(int64_t size, float scale, int32_t zero_point = 0) {
  const int64_t shape[] = {size};
  QuantParams params{Tiling::per_tensor(shape), {scale}, {}};
  if (zero_point != 0) params.zero_point = {zero_point};
  if (size == 0) params.scale.resize(static_cast<size_t>(params.tiling.tile_count()), scale);
  if (size == 0 && zero_point != 0) params.zero_point.resize(params.scale.size(), zero_point);
  return params;
}

/// Scales and, for some integer tilings, zero points that differ from tile to tile.
QuantParams varied_params(const Format& format, const Tiling& tiling, bool zero_points) {
  QuantParams params{tiling, {}, {}};
  std::mt19937 random(5);
  for (int64_t i = 0; i < tiling.tile_count(); ++i) {
    params.scale.push_back(std::ldexp(0.6f + static_cast<float>(random() % 1000) / 1700, static_cast<int>(i % 5) - 3));
    if (!zero_points) continue;
    const int64_t codes = format.integer_max() - format.integer_min() + 1;
    params.zero_point.push_back(static_cast<int32_t>(format.integer_min() + random() % codes));
  }
  return params;
}

/// Out of place at an odd address, with guards, and in place: both must equal the reference.
void expect_equal(const std::vector<float>& in, const std::vector<float>& expected, const Format& format,
                  const QuantParams& params, const QuantizeOptions& options, size_t offset) {
  constexpr float kGuard = 123.456f;
  std::vector<float> from(in.size() + 32), to(in.size() + 32, kGuard);
  std::copy(in.begin(), in.end(), from.begin() + static_cast<ptrdiff_t>(offset));
  const std::span<float> source(from.data() + offset, in.size());
  const std::span<float> target(to.data() + 16 - offset, in.size());
  fake_quantize(source, target, format, params, options);
  ASSERT_TRUE(same_values(target.data(), expected, in));
  for (size_t i = 0; i < 16 - offset; ++i) ASSERT_EQ(to[i], kGuard) << i;
  for (size_t i = 16 - offset + in.size(); i < to.size(); ++i) ASSERT_EQ(to[i], kGuard) << i;
  fake_quantize(source, source, format, params, options);
  ASSERT_TRUE(same_values(source.data(), expected, in)) << "in place";
}

void check(const std::vector<float>& in, const Format& format, const QuantParams& params,
           const QuantizeOptions& options, size_t offset = 0) {
  std::vector<float> expected(in.size());
  reference::fake_quantize(in, expected, format, params, options);
  for_each_simd_target([&] { expect_equal(in, expected, format, params, options, offset); });
}

std::vector<Tiling> tilings() {
  std::vector<Tiling> all;
  const std::vector<std::vector<int64_t>> shapes{{3, 5, 7, 4}, {2, 67, 33}, {1, 1, 40}, {9, 1, 2}, {70}, {}, {6, 130}};
  for (const auto& shape : shapes) {
    all.push_back(Tiling::per_tensor(shape));
    const int64_t rank = std::ssize(shape);
    for (int64_t axis = 0; axis < rank; ++axis) {
      all.push_back(Tiling::per_channel(shape, axis));
      for (const int64_t group : {2, 3, 17, 32}) all.push_back(Tiling::per_group(shape, axis, group));
    }
    if (rank > 0) all.push_back(Tiling::per_token(shape));
    if (rank > 1) all.push_back(Tiling::per_block(shape, 2, 3));
    if (rank > 1) all.push_back(Tiling::per_block(shape, 4, 20));
  }
  return all;
}

TEST(FakeQuantize, EveryTargetIsExactAroundEveryCode) {
  for_each_simd_target([] { std::printf("target %s\n", hwy::TargetName(hwy::SupportedTargets())); });
  for (const Format* format : plain_formats()) {
    for (const QuantizeOptions& options : all_options(*format)) {
      SCOPED_TRACE(describe(*format, options));
      for (const float scale : {1.0f, 0.0173f, 0x1p-140f, 3e30f}) {
        std::vector<float> in = special_values();
        const std::vector<float> around = values_around_codes(*format, scale);
        in.insert(in.end(), around.begin(), around.end());
        check(in, *format, one_scale(std::ssize(in), scale), options);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(FakeQuantize, ZeroPoints) {
  for (const Format* format : plain_formats()) {
    if (format->kind != FormatKind::Integer) continue;
    for (const Rounding rounding : kRoundings) {
      SCOPED_TRACE(describe(*format, {rounding}));
      std::vector<float> in = special_values();
      const std::vector<float> around = values_around_codes(*format, 0.37f);
      in.insert(in.end(), around.begin(), around.end());
      for (const int64_t zero_point : {format->integer_min(), format->integer_max(), format->integer_max() / 3}) {
        check(in, *format, one_scale(std::ssize(in), 0.37f, static_cast<int32_t>(zero_point)), {rounding});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(FakeQuantize, EveryLengthAndAlignment) {
  for (const Format* format : plain_formats()) {
    const float scale = static_cast<float>(2 / format->max());
    for (const QuantizeOptions& options : all_options(*format)) {
      SCOPED_TRACE(describe(*format, options));
      for (const int64_t n : {1, 4, 8, 16}) {  // lanes of the targets
        for (const int64_t length : {int64_t{0}, int64_t{1}, n - 1, n, n + 1, 8 * n + 2}) {
          for (const size_t offset : {0, 1, 3}) {
            check(normal_values(length, 1, 3), *format, one_scale(length, scale), options, offset);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST(FakeQuantize, EveryTiling) {
  for (const Format* format : plain_formats()) {
    const bool integer = format->kind == FormatKind::Integer;
    for (const Rounding rounding : {Rounding::HalfEven, Rounding::Stochastic}) {
      for (const Tiling& tiling : tilings()) {
        for (const bool zero_points : {false, true}) {
          if (zero_points && !integer) continue;
          SCOPED_TRACE(fmt::format("{} shape [{}] tile [{}]", describe(*format, {rounding}),
                                   fmt::join(tiling.shape, ","), fmt::join(tiling.tile, ",")));
          const std::vector<float> in = normal_values(tiling.element_count(), 20, 11);
          check(in, *format, varied_params(*format, tiling, zero_points), {rounding}, 1);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(FakeQuantize, EverySixteenBitInput) {
  std::vector<uint16_t> halves(1 << 16);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  const int64_t size = std::ssize(halves);
  for (const FloatView::Type type : {FloatView::Type::Float16, FloatView::Type::BFloat16}) {
    const FloatView in(halves.data(), size, type);
    for (const Format* format : plain_formats()) {
      const QuantParams params = one_scale(size, 0.75f);
      for (const bool saturate : {true, false}) {
        const QuantizeOptions options{.saturate = saturate};
        SCOPED_TRACE(describe(*format, options));
        std::vector<float> expected(halves.size());
        reference::fake_quantize(in, expected, *format, params, options);
        for_each_simd_target([&] {
          std::vector<float> out(halves.size());
          fake_quantize(in, out, *format, params, options);
          ASSERT_TRUE(same_values(out.data(), expected, [&](size_t i) { return in.at(static_cast<int64_t>(i)); }));
        });
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(FakeQuantize, ThreadsChangeNothing) {
  const std::vector<int64_t> shape{7, 50021};
  const int threads = thread_count();
  for (const Format* format : plain_formats()) {
    for (const Tiling& tiling : {Tiling::per_tensor(shape), Tiling::per_channel(shape, 1),
                                 Tiling::per_group(shape, 1, 32), Tiling::per_block(shape, 2, 5)}) {
      const std::vector<float> in = normal_values(tiling.element_count(), 10, 2);
      const QuantParams params = varied_params(*format, tiling, false);
      for (const Rounding rounding : {Rounding::HalfEven, Rounding::Stochastic}) {
        std::vector<std::vector<float>> results;
        for (const int count : {1, 2, 3}) {
          set_thread_count(count);
          results.emplace_back(in.size());
          fake_quantize(in, results.back(), *format, params, {rounding});
        }
        set_thread_count(threads);
        ASSERT_TRUE(same_values(results[1].data(), results[0], in)) << format->name;
        ASSERT_TRUE(same_values(results[2].data(), results[0], in)) << format->name;
      }
    }
  }
}

TEST(FakeQuantize, StreamedOutputEqualsPlain) {
  int64_t rows = 1024;
  const float first = 0;  // only the address and the size count
  while (!worth_streaming({}, std::span(&first, static_cast<size_t>(rows * 63)))) rows *= 2;
  const std::vector<int64_t> shape{rows, 63};
  std::vector<float> in = normal_values(1 << 16, 3, 8);
  in.resize(static_cast<size_t>(rows * 63));
  for (size_t i = 1 << 16; i < in.size(); ++i) in[i] = in[i - 65521] * 1.0001f;
  std::vector<float> out(in.size() + 3);
  for (const char* name : {"int8", "fp8_e4m3", "bfloat16"}) {
    for (const Tiling& tiling :
         {Tiling::per_tensor(shape), Tiling::per_channel(shape, 1), Tiling::per_group(shape, 1, 32)}) {
      for (const size_t offset : {0, 3}) {
        const std::span<float> target(out.data() + offset, in.size());
        ASSERT_TRUE(worth_streaming(in, target));
        const QuantParams params = varied_params(format(name), tiling, false);
        fake_quantize(in, target, format(name), params);
        std::vector<float> plain = in;
        fake_quantize(plain, plain, format(name), params);
        ASSERT_TRUE(same_values(target.data(), plain, in)) << name;
      }
    }
  }
}

TEST(FakeQuantize, BadParametersAreNamed) {
  const std::vector<float> in(12, 1.0f);
  std::vector<float> out(12);
  const std::vector<int64_t> shape{3, 4};
  const auto where = [&](const QuantParams& params, const char* name, std::span<float> target) -> std::string {
    try {
      fake_quantize(in, target, format(name), params);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::InvalidInput);
      return error.where();
    }
    return "nothing thrown";
  };
  const Tiling rows = Tiling::per_channel(shape, 0);
  EXPECT_EQ(where({rows, {1, 1, 1}, {}}, "int8", out), "nothing thrown");
  EXPECT_EQ(where({rows, {1, 0, 1}, {}}, "int8", out), "scale");
  EXPECT_EQ(where({rows, {1, NAN, 1}, {}}, "int8", out), "scale");
  EXPECT_EQ(where({rows, {1, 1}, {}}, "int8", out), "scale");
  EXPECT_EQ(where({rows, {1, 1, 1}, {0, 0}}, "int8", out), "zero_point");
  EXPECT_EQ(where({rows, {1, 1, 1}, {0, 0, 128}}, "int8", out), "zero_point");
  EXPECT_EQ(where({rows, {1, 1, 1}, {0, 0, 0}}, "fp8_e4m3", out), "zero_point");
  EXPECT_EQ(where({rows, {1, 1, 1}, {}}, "mxfp4", out), "format");
  EXPECT_EQ(where({rows, {1, 1, 1}, {}}, "int8", std::span(out).first(11)), "out");
  EXPECT_EQ(where(one_scale(13, 1), "int8", out), "in");
}

}  // namespace

}  // namespace kaon
