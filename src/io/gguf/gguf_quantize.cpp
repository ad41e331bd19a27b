// The other way round than gguf_types.cpp. Products and sums are rounded to float32 in ggml's order, so that codes are
// equal to the bit.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/parallel.h"
#include "base/text.h"
#include "io/gguf/gguf_blocks.h"
#include "io/gguf/gguf_writer.h"
#include "numerics/half.h"

namespace kaon {
namespace {

constexpr int kSmall = 32;

void put_half(std::byte* p, float value) {
  const uint16_t half = float32_to_float16(value);
  std::memcpy(p, &half, sizeof(half));
}

float reciprocal(float d) { return d == 0 ? 0 : 1 / d; }

/// The element that is farthest from 0, with its sign; the first of equals.
float farthest(const float* x) {
  float far = x[0];
  for (int i = 1; i < kSmall; ++i) {
    if (std::abs(x[i]) > std::abs(far)) far = x[i];
  }
  return far;
}

void put_nibbles(std::byte* p, const int* codes) {
  for (int i = 0; i < kSmall / 2; ++i) {
    p[i] = static_cast<std::byte>((codes[i] & 15) | (codes[i + kSmall / 2] & 15) << 4);
  }
}

void put_fifth_bits(std::byte* p, const int* codes) {
  for (int byte = 0; byte < 4; ++byte) {
    int bits = 0;
    for (int i = 0; i < 8; ++i) bits |= (codes[byte * 8 + i] >> 4) << i;
    p[byte] = static_cast<std::byte>(bits);
  }
}

/// Codes from 0 to 2·half - 1 around `half`; returns the step.
float around_zero(const float* x, const float* importance, int half, int* codes) {
  const float d = importance == nullptr ? farthest(x) / static_cast<float>(-half) : weighted_step(x, importance, half);
  const float id = reciprocal(d);
  for (int i = 0; i < kSmall; ++i) {
    const float scaled = x[i] * id;
    codes[i] = std::clamp(static_cast<int>(scaled + (static_cast<float>(half) + 0.5F)), 0, 2 * half - 1);
  }
  return d;
}

/// Codes from the smallest element up to `most`; returns the step, then the minimum.
std::pair<float, float> from_minimum(const float* x, const float* importance, int most, int* codes) {
  const auto [least, largest] = std::minmax_element(x, x + kSmall);
  std::pair<float, float> fit{(*largest - *least) / static_cast<float>(most), *least};
  if (importance != nullptr) fit = weighted_step_and_minimum(x, importance, most);
  const auto [d, min] = fit;
  const float id = reciprocal(d);
  for (int i = 0; i < kSmall; ++i) {
    const float scaled = (x[i] - min) * id;
    // As llama.cpp rounds, to the bit.
    codes[i] = std::clamp(static_cast<int>(scaled + 0.5F), 0, most);  // NOLINT(bugprone-incorrect-roundings)
  }
  return fit;
}

void q4_0(const float* x, const float* importance, std::byte* p) {
  int codes[kSmall];
  put_half(p, around_zero(x, importance, 8, codes));
  put_nibbles(p + 2, codes);
}

void q5_0(const float* x, const float* importance, std::byte* p) {
  int codes[kSmall];
  put_half(p, around_zero(x, importance, 16, codes));
  put_fifth_bits(p + 2, codes);
  put_nibbles(p + 6, codes);
}

void q4_1(const float* x, const float* importance, std::byte* p) {
  int codes[kSmall];
  const auto [d, min] = from_minimum(x, importance, 15, codes);
  put_half(p, d);
  put_half(p + 2, min);
  put_nibbles(p + 4, codes);
}

void q5_1(const float* x, const float* importance, std::byte* p) {
  int codes[kSmall];
  const auto [d, min] = from_minimum(x, importance, 31, codes);
  put_half(p, d);
  put_half(p + 2, min);
  put_fifth_bits(p + 4, codes);
  put_nibbles(p + 8, codes);
}

void q8_0(const float* x, const float* /*importance*/, std::byte* p) {
  const float d = std::abs(farthest(x)) / 127;
  const float id = reciprocal(d);
  put_half(p, d);
  for (int i = 0; i < kSmall; ++i) {
    const float scaled = x[i] * id;
    p[2 + i] = static_cast<std::byte>(static_cast<int8_t>(std::round(scaled)));  // half away from zero
  }
}

void iq4_nl(const float* x, const float* importance, std::byte* p) {
  // Steps around the one that puts the farthest element on an end of the table: the one with the least error.
  const float far = farthest(x);
  float best_d = 0;
  double least = INFINITY;
  int codes[kSmall] = {}, best[kSmall] = {};
  // What an element's error counts: large ones more, as in ggml's own rounding.
  float squares[kSmall], weights[kSmall];
  std::transform(x, x + kSmall, squares, [](float value) { return value * value; });
  const float mean = std::accumulate(squares, squares + kSmall, 0.0F) / kSmall;
  for (int i = 0; i < kSmall; ++i) {
    weights[i] = importance == nullptr ? squares[i] : importance[i] * std::sqrt(mean + squares[i]);
  }
  for (int t = -7; t <= 7 && far != 0; ++t) {
    const float id = (kNonLinear[0] + static_cast<float>(t)) / far;
    double xv = 0, vv = 0;
    for (int i = 0; i < kSmall; ++i) {
      codes[i] = nearest_non_linear(x[i] * id);
      const auto v = static_cast<double>(kNonLinear[codes[i]]), w = static_cast<double>(weights[i]);
      xv += w * v * static_cast<double>(x[i]);
      vv += w * v * v;
    }
    if (vv <= 0) continue;
    const double d = xv / vv;
    if (-d * xv >= least) continue;  // Σw(x - d·v)² is Σwx² - d·Σwxv
    least = -d * xv;
    best_d = static_cast<float>(d);
    std::copy(codes, codes + kSmall, best);
  }
  put_half(p, best_d);
  put_nibbles(p + 2, best);
}

void mxfp4(const float* x, const float* /*importance*/, std::byte* p) {
  constexpr float kDoubled[8] = {0, 1, 2, 3, 4, 6, 8, 12};
  const float amax = std::abs(farthest(x));
  const int e = amax > 0 ? std::clamp(static_cast<int>(std::floor(std::log2(amax))) - 2 + 127, 0, 255) : 0;
  p[0] = static_cast<std::byte>(e);
  const float half_step = std::ldexp(0.5F, e - 127);  // of the doubled table
  int codes[kSmall];
  for (int i = 0; i < kSmall; ++i) {
    int best = 0;
    float least = std::abs(x[i]);
    for (int code = 1; code < 8; ++code) {
      const float error = std::abs(std::abs(x[i]) - kDoubled[code] * half_step);
      if (error < least) {
        least = error;
        best = code;
      }
    }
    codes[i] = best | (best != 0 && x[i] < 0 ? 8 : 0);
  }
  put_nibbles(p + 1, codes);
}

using Quantize = void (*)(const float* block, const float* importance, std::byte* out);

Quantize quantizer_of(std::string_view name) {
  constexpr std::pair<std::string_view, Quantize> kAll[] = {
      {"Q4_0", q4_0},          {"Q4_1", q4_1},          {"Q5_0", q5_0},          {"Q5_1", q5_1},
      {"Q8_0", q8_0},          {"IQ4_NL", iq4_nl},      {"MXFP4", mxfp4},        {"Q2_K", quantize_q2_k},
      {"Q3_K", quantize_q3_k}, {"Q4_K", quantize_q4_k}, {"Q5_K", quantize_q5_k}, {"Q6_K", quantize_q6_k}};
  const auto row = std::ranges::find(kAll, name, &std::pair<std::string_view, Quantize>::first);
  return row == std::end(kAll) ? nullptr : row->second;
}

bool is_plain(std::string_view name) { return name == "F32" || name == "F16" || name == "BF16"; }

}  // namespace

const GgufType& gguf_type(const std::string& name) {
  std::vector<std::string_view> known;
  for (const GgufType& type : gguf_types()) {
    if (!is_plain(type.name) && quantizer_of(type.name) == nullptr) continue;
    if (std::ranges::equal(type.name, name,
                           [](char a, char b) { return a == std::toupper(static_cast<unsigned char>(b)); })) {
      return type;
    }
    known.push_back(type.name);
  }
  fail(ErrorCode::InvalidInput, "gguf", "the type '{}' cannot be written; {} can", name, fmt::join(known, ", "));
}

void gguf_quantize(const GgufType& type, std::span<const float> values, std::span<std::byte> out,
                   std::span<const float> importance) {
  if (is_plain(type.name)) {
    parallel_for(0, std::ssize(values), 1 << 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const float value = values[static_cast<size_t>(i)];
        if (type.bytes == 4) {
          std::memcpy(out.data() + 4 * i, &value, 4);
        } else {
          const uint16_t half = type.plain == DType::Float16 ? float32_to_float16(value) : float32_to_bfloat16(value);
          std::memcpy(out.data() + 2 * i, &half, 2);
        }
      }
    });
    return;
  }
  const Quantize quantize = quantizer_of(type.name);
  constexpr int64_t kGrain = 64;  // blocks a thread takes at least
  parallel_for(0, std::ssize(values) / type.block, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i * type.block;
      const float* counts = importance.empty() ? nullptr : importance.data() + first % std::ssize(importance);
      quantize(values.data() + first, counts, out.data() + i * type.bytes);
    }
  });
}

}  // namespace kaon
