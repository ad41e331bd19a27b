#pragma once
// Inputs and comparisons for the tests of the fake-quantize kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "numerics/reference.h"

namespace kaon {

inline constexpr Rounding kRoundings[] = {Rounding::HalfEven, Rounding::HalfAway, Rounding::Floor, Rounding::Ceil,
                                          Rounding::Stochastic};

/// Bit for bit, any NaN equal to any other.
inline bool same_bits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

template <typename Inputs>
::testing::AssertionResult same_values(const float* got, const std::vector<float>& expected, const Inputs& input) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (same_bits(got[i], expected[i])) continue;
    return ::testing::AssertionFailure() << "element " << i << " of " << expected.size() << ": input " << std::hexfloat
                                         << input(i) << " gives " << got[i] << ", expected " << expected[i];
  }
  return ::testing::AssertionSuccess();
}

inline ::testing::AssertionResult same_values(const float* got, const std::vector<float>& expected,
                                              const std::vector<float>& input) {
  return same_values(got, expected, [&](size_t i) { return input[i]; });
}

/// Zeros, subnormal numbers, NaN, Inf, powers of two, the largest and smallest floats.
inline std::vector<float> special_values() {
  std::vector<float> values{0.0f, FLT_TRUE_MIN, 1e-40f, FLT_MIN, FLT_MAX, INFINITY, NAN, 0.49999997f, 8388607.5f};
  for (int exponent = -149; exponent < 128; exponent += 3) values.push_back(std::ldexp(1.4f, exponent));
  for (int exponent = 22; exponent < 34; ++exponent) {
    const float power = std::ldexp(1.0f, exponent);
    values.insert(values.end(), {std::nextafter(power, 0.0f), power, std::nextafter(power, INFINITY)});
  }
  const size_t count = values.size();
  for (size_t i = 0; i < count; ++i) values.push_back(-values[i]);
  return values;
}

/// The numbers of an Integer or Float format times `scale`, the ties between them, and their neighbours in float32.
/// Formats above 8 bits give a sample of about 500 numbers.
inline std::vector<float> values_around_codes(const Format& format, float scale) {
  std::vector<float> values;
  const uint64_t codes = uint64_t{1} << format.bits;
  const uint64_t step = std::max<uint64_t>(1, codes / 509);
  const auto add = [&](double value) {
    const float x = static_cast<float>(value * scale);
    values.insert(values.end(), {x, std::nextafter(x, -INFINITY), std::nextafter(x, INFINITY)});
  };
  for (uint64_t code = 0; code < codes; code += step) {
    const double value = reference::decode(format, static_cast<uint32_t>(code));
    const double next = reference::decode(format, static_cast<uint32_t>(code + 1 < codes ? code + 1 : code));
    add(value);
    if (std::isfinite(value) && std::isfinite(next)) add((value + next) / 2);
  }
  for (const double end : {format.max(), format.min()}) {
    for (const double factor : {0.99, 1.0, 1.001, 1.01, 1.03, 1.0625, 1.25, 2.0}) add(end * factor);
  }
  return values;
}

inline std::vector<float> normal_values(int64_t count, float sigma, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, sigma);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

}  // namespace kaon
