#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "io/gguf/gguf_blocks.h"
#include "numerics/half.h"

namespace kaon {
namespace {

constexpr int kSuper = 256;
constexpr int kTries = 24;  ///< ranges that are tried for a group
constexpr int kTriesBelow = kTries / 2;

void put_half(std::byte* p, float value) {
  const uint16_t half = float32_to_float16(value);
  std::memcpy(p, &half, sizeof(half));
}

float as_half(float value) { return float16_to_float32(float32_to_float16(value)); }

void put_byte(std::byte* p, int value) { *p = static_cast<std::byte>(value); }

/// What the errors of a group's elements count: large ones matter more, as they do in ggml's own rounding, and those
/// that are multiplied with more.
std::array<float, 32> weights_of(const float* x, const float* importance, int count) {
  float sum = 0;
  for (int i = 0; i < count; ++i) sum += x[i] * x[i];
  const float mean = sum / static_cast<float>(count);
  std::array<float, 32> weights{};
  for (int i = 0; i < count; ++i) {
    weights[static_cast<size_t>(i)] =
        importance == nullptr ? std::sqrt(mean) + std::abs(x[i]) : importance[i] * std::sqrt(mean + x[i] * x[i]);
  }
  return weights;
}

const float* part_of(const float* importance, int first) {
  return importance == nullptr ? nullptr : importance + first;
}

struct StepMin {
  float step = 0;
  float min = 0;  ///< taken off, never negative
};

/// x ≈ step · code - min with codes from 0 to `most`.
StepMin fit_with_minimum(const float* x, const float* importance, int count, int most) {
  const std::array<float, 32> weights = weights_of(x, importance, count);
  const float low = std::min(0.0F, *std::min_element(x, x + count)), high = *std::max_element(x, x + count);
  if (high <= low) return {0, -low};
  StepMin best{(high - low) / static_cast<float>(most), -low};
  double least = INFINITY;
  const auto try_codes = [&](float step, float min) {
    double w = 0, wq = 0, wqq = 0, wx = 0, wqx = 0;
    std::array<int, 32> codes;
    for (int i = 0; i < count; ++i) {
      const int code = std::clamp(static_cast<int>(std::lround((x[i] + min) / step)), 0, most);
      codes[static_cast<size_t>(i)] = code;
      const auto each = static_cast<double>(weights[static_cast<size_t>(i)]);
      w += each;
      wq += each * code;
      wqq += each * code * code;
      wx += each * static_cast<double>(x[i]);
      wqx += each * code * static_cast<double>(x[i]);
    }
    const double determinant = w * wqq - wq * wq;
    double s = static_cast<double>(step), m = static_cast<double>(min);
    if (determinant > 0) {
      s = (w * wqx - wq * wx) / determinant;
      m = (wq * wqx - wqq * wx) / determinant;
      if (m < 0 && wqq > 0) {
        m = 0;
        s = wqx / wqq;
      }
    }
    if (s <= 0) return;
    double error = 0;
    for (int i = 0; i < count; ++i) {
      const double lost = s * codes[static_cast<size_t>(i)] - m - static_cast<double>(x[i]);
      error += static_cast<double>(weights[static_cast<size_t>(i)]) * lost * lost;
    }
    if (error >= least) return;
    least = error;
    best = {static_cast<float>(s), static_cast<float>(m)};
  };
  for (int t = 0; t < kTries; ++t) {
    const float share = 1 - 0.02F * static_cast<float>(t);
    try_codes((high - low) * share / static_cast<float>(most), -low * share);
    try_codes((high - low) * share / static_cast<float>(most), -low);
    // A little more or less than all codes.
    try_codes((high - low) / (static_cast<float>(most) + 0.1F * static_cast<float>(t - kTriesBelow)), -low);
  }
  return best;
}

/// x ≈ step · code with codes from -half to half - 1; the step may be negative.
float fit_symmetric(const float* x, const float* importance, int count, int half) {
  float far = x[0];
  for (int i = 1; i < count; ++i) {
    if (std::abs(x[i]) > std::abs(far)) far = x[i];
  }
  if (far == 0) return 0;
  const std::array<float, 32> weights = weights_of(x, importance, count);
  float best = far / static_cast<float>(-half);
  double least = INFINITY;
  for (int t = -kTriesBelow; t <= kTriesBelow; ++t) {
    const float step = far / -(static_cast<float>(half) + 0.1F * static_cast<float>(t));
    double qq = 0, qx = 0;
    for (int i = 0; i < count; ++i) {
      const int code = std::clamp(static_cast<int>(std::lround(x[i] / step)), -half, half - 1);
      const auto w = static_cast<double>(weights[static_cast<size_t>(i)]);
      qq += w * code * code;
      qx += w * code * static_cast<double>(x[i]);
    }
    if (qq <= 0 || -qx * qx / qq >= least) continue;
    least = -qx * qx / qq;
    best = static_cast<float>(qx / qq);
  }
  return best;
}

int nearest_code(float x, float step, int low, int high) {
  return step == 0 ? std::clamp(0, low, high) : std::clamp(static_cast<int>(std::lround(x / step)), low, high);
}

constexpr int kRounds = 3;  ///< in which the common numbers and those of the groups take turns

/// What the errors of a super-block's elements count.
std::array<float, kSuper> all_weights(const float* x, const float* importance, int each) {
  std::array<float, kSuper> weights;
  for (int first = 0; first < kSuper; first += each) {
    const std::array<float, 32> group = weights_of(x + first, part_of(importance, first), each);
    std::copy_n(group.begin(), each, weights.begin() + first);
  }
  return weights;
}

/// Steps and minima of the groups of a super-block, each a small number times a common one.
template <int kGroups>
struct WithMinima {
  float d = 0, dmin = 0;
  std::array<int, kGroups> scale{}, min{};
  std::array<int, kSuper> codes{};

  WithMinima(const float* x, const float* importance, int most_code, int most_scale) {
    std::array<StepMin, kGroups> fits;
    float step = 0, low = 0;
    for (int g = 0; g < kGroups; ++g) {
      StepMin& fit = fits[static_cast<size_t>(g)];
      fit = fit_with_minimum(x + g * kEach, part_of(importance, g * kEach), kEach, most_code);
      step = std::max(step, fit.step);
      low = std::max(low, fit.min);
    }
    const std::array<float, kSuper> weights = all_weights(x, importance, kEach);
    d = as_half(step / static_cast<float>(most_scale));
    dmin = as_half(low / static_cast<float>(most_scale));
    for (size_t g = 0; g < kGroups; ++g) {
      scale[g] = nearest_code(fits[g].step, d, 0, most_scale);
      min[g] = nearest_code(fits[g].min, dmin, 0, most_scale);
    }
    double least = choose(x, weights, most_code, most_scale);
    for (int round = 0; round < kRounds; ++round) {
      WithMinima next = *this;
      next.fit_common(x, weights);
      const double error = next.choose(x, weights, most_code, most_scale);
      if (!(error < least)) break;
      least = error;
      *this = next;
    }
  }

 private:
  static constexpr int kEach = kSuper / kGroups;

  /// Moves each group's step and minimum to those neighbours that have the least error, and sets the codes. Returns the
  /// error.
  double choose(const float* x, const std::array<float, kSuper>& weights, int most_code, int most_scale) {
    double sum = 0;
    for (int g = 0; g < kGroups; ++g) {
      const auto at = static_cast<size_t>(g);
      const int from_step = scale[at], from_low = min[at];
      float least = INFINITY;
      for (int s = std::max(0, from_step - 1); s <= std::min(most_scale, from_step + 1); ++s) {
        for (int m = std::max(0, from_low - 1); m <= std::min(most_scale, from_low + 1); ++m) {
          const float dl = d * static_cast<float>(s), ml = dmin * static_cast<float>(m);
          float error = 0;
          for (int i = g * kEach; i < (g + 1) * kEach; ++i) {
            const float lost = static_cast<float>(nearest_code(x[i] + ml, dl, 0, most_code)) * dl - ml - x[i];
            error += weights[static_cast<size_t>(i)] * lost * lost;
          }
          if (error >= least) continue;
          least = error;
          scale[at] = s;
          min[at] = m;
        }
      }
      sum += static_cast<double>(least);
      const float dl = d * static_cast<float>(scale[at]), ml = dmin * static_cast<float>(min[at]);
      for (int i = g * kEach; i < (g + 1) * kEach; ++i) {
        codes[static_cast<size_t>(i)] = nearest_code(x[i] + ml, dl, 0, most_code);
      }
    }
    return sum;
  }

  /// The common step and minimum that suit the groups' numbers and the codes best.
  void fit_common(const float* x, const std::array<float, kSuper>& weights) {
    double ss = 0, sm = 0, mm = 0, sx = 0, mx = 0;
    for (size_t i = 0; i < kSuper; ++i) {
      const double w = static_cast<double>(weights[i]), value = static_cast<double>(x[i]);
      const double s = scale[i / kEach] * codes[i], m = -min[i / kEach];
      ss += w * s * s;
      sm += w * s * m;
      mm += w * m * m;
      sx += w * s * value;
      mx += w * m * value;
    }
    const double determinant = ss * mm - sm * sm;
    if (mm == 0 && ss > 0) {
      d = as_half(static_cast<float>(sx / ss));
    } else if (determinant > 0) {
      d = as_half(static_cast<float>((mm * sx - sm * mx) / determinant));
      dmin = as_half(static_cast<float>((ss * mx - sm * sx) / determinant));
    }
  }
};

/// The same around zero.
struct Symmetric {
  float d = 0;
  std::array<int, 16> scale{};
  std::array<int, kSuper> codes{};  ///< from -half on

  Symmetric(const float* x, const float* importance, int half, int most_scale) {
    std::array<float, 16> steps;
    float far = 0;
    for (int g = 0; g < 16; ++g) {
      steps[static_cast<size_t>(g)] = fit_symmetric(x + g * 16, part_of(importance, g * 16), 16, half);
      if (std::abs(steps[static_cast<size_t>(g)]) > std::abs(far)) far = steps[static_cast<size_t>(g)];
    }
    const std::array<float, kSuper> weights = all_weights(x, importance, 16);
    d = as_half(far / static_cast<float>(-most_scale));
    for (size_t g = 0; g < 16; ++g) scale[g] = nearest_code(steps[g], d, -most_scale, most_scale - 1);
    double least = choose(x, weights, half, most_scale);
    for (int round = 0; round < kRounds; ++round) {
      Symmetric next = *this;
      next.fit_common(x, weights);
      const double error = next.choose(x, weights, half, most_scale);
      if (!(error < least)) break;
      least = error;
      *this = next;
    }
  }

 private:
  double choose(const float* x, const std::array<float, kSuper>& weights, int half, int most_scale) {
    double sum = 0;
    for (int g = 0; g < 16; ++g) {
      const auto at = static_cast<size_t>(g);
      const int from = scale[at];
      float least = INFINITY;
      for (int s = std::max(-most_scale, from - 1); s <= std::min(most_scale - 1, from + 1); ++s) {
        const float dl = d * static_cast<float>(s);
        float error = 0;
        for (int i = g * 16; i < (g + 1) * 16; ++i) {
          const float lost = static_cast<float>(nearest_code(x[i], dl, -half, half - 1)) * dl - x[i];
          error += weights[static_cast<size_t>(i)] * lost * lost;
        }
        if (error >= least) continue;
        least = error;
        scale[at] = s;
      }
      sum += static_cast<double>(least);
      const float dl = d * static_cast<float>(scale[at]);
      for (int i = g * 16; i < (g + 1) * 16; ++i)
        codes[static_cast<size_t>(i)] = nearest_code(x[i], dl, -half, half - 1);
    }
    return sum;
  }

  void fit_common(const float* x, const std::array<float, kSuper>& weights) {
    double ss = 0, sx = 0;
    for (size_t i = 0; i < kSuper; ++i) {
      const double s = scale[i / 16] * codes[i];
      ss += static_cast<double>(weights[i]) * s * s;
      sx += static_cast<double>(weights[i]) * s * static_cast<double>(x[i]);
    }
    if (ss > 0) d = as_half(static_cast<float>(sx / ss));
  }
};

/// Two-bit parts, 128 in 32 bytes, 32 at each shift.
void put_two_bits(std::byte* p, int i, int value) {
  p[i / 128 * 32 + i % 32] |= static_cast<std::byte>(value << (i % 128 / 32 * 2));
}

void put_long_nibble(std::byte* p, int i, int value) {
  p[i / 64 * 32 + i % 32] |= static_cast<std::byte>(value << (i % 64 / 32 * 4));
}

/// Eight scales and minima of 6 bits in 12 bytes.
void put_scales(std::byte* p, const WithMinima<8>& fit) {
  for (int j = 0; j < 8; ++j) {
    const int s = fit.scale[static_cast<size_t>(j)], m = fit.min[static_cast<size_t>(j)];
    if (j < 4) {
      p[j] |= static_cast<std::byte>(s);
      p[j + 4] |= static_cast<std::byte>(m);
    } else {
      p[j + 4] |= static_cast<std::byte>((s & 15) | (m & 15) << 4);
      p[j - 4] |= static_cast<std::byte>(s >> 4 << 6);
      p[j] |= static_cast<std::byte>(m >> 4 << 6);
    }
  }
}

}  // namespace

float weighted_step(const float* x, const float* importance, int half) {
  return fit_symmetric(x, importance, 32, half);
}

std::pair<float, float> weighted_step_and_minimum(const float* x, const float* importance, int most) {
  const StepMin fit = fit_with_minimum(x, importance, 32, most);
  return {fit.step, -fit.min};
}

void quantize_q2_k(const float* x, const float* importance, std::byte* p) {
  std::memset(p, 0, 84);
  const WithMinima<16> fit(x, importance, 3, 15);
  for (size_t g = 0; g < 16; ++g) put_byte(p + g, fit.scale[g] | fit.min[g] << 4);
  for (int i = 0; i < kSuper; ++i) put_two_bits(p + 16, i, fit.codes[static_cast<size_t>(i)]);
  put_half(p + 80, fit.d);
  put_half(p + 82, fit.dmin);
}

void quantize_q3_k(const float* x, const float* importance, std::byte* p) {
  std::memset(p, 0, 110);
  const Symmetric fit(x, importance, 4, 32);
  for (int i = 0; i < kSuper; ++i) {
    const int code = fit.codes[static_cast<size_t>(i)] + 4;
    put_two_bits(p + 32, i, code & 3);
    p[i % 32] |= static_cast<std::byte>((code >> 2) << (i / 32));
  }
  for (int g = 0; g < 16; ++g) {
    const int scale = fit.scale[static_cast<size_t>(g)] + 32;
    p[96 + g % 8] |= static_cast<std::byte>((scale & 15) << (g / 8 * 4));
    p[96 + 8 + g % 4] |= static_cast<std::byte>((scale >> 4) << (g / 4 * 2));
  }
  put_half(p + 108, fit.d);
}

void quantize_q4_k(const float* x, const float* importance, std::byte* p) {
  std::memset(p, 0, 144);
  const WithMinima<8> fit(x, importance, 15, 63);
  put_half(p, fit.d);
  put_half(p + 2, fit.dmin);
  put_scales(p + 4, fit);
  for (int i = 0; i < kSuper; ++i) put_long_nibble(p + 16, i, fit.codes[static_cast<size_t>(i)]);
}

void quantize_q5_k(const float* x, const float* importance, std::byte* p) {
  std::memset(p, 0, 176);
  const WithMinima<8> fit(x, importance, 31, 63);
  put_half(p, fit.d);
  put_half(p + 2, fit.dmin);
  put_scales(p + 4, fit);
  for (int i = 0; i < kSuper; ++i) {
    const int code = fit.codes[static_cast<size_t>(i)];
    put_long_nibble(p + 48, i, code & 15);
    p[16 + i % 32] |= static_cast<std::byte>((code >> 4) << (i / 32));
  }
}

void quantize_q6_k(const float* x, const float* importance, std::byte* p) {
  std::memset(p, 0, 210);
  const Symmetric fit(x, importance, 32, 128);
  for (int i = 0; i < kSuper; ++i) {
    const int code = fit.codes[static_cast<size_t>(i)] + 32;
    p[i / 128 * 64 + i % 64] |= static_cast<std::byte>((code & 15) << (i % 128 / 64 * 4));
    put_two_bits(p + 128, i, code >> 4);
  }
  for (size_t g = 0; g < 16; ++g) put_byte(p + 192 + g, fit.scale[g]);
  put_half(p + 208, fit.d);
}

}  // namespace kaon
