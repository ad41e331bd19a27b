// The block layouts of ggml. Scales are float16 unless said; nibbles come low first. Every product and sum is rounded
// to float32 in the order in which the `gguf` package's NumPy code does it.
#include <bit>
#include <cstring>

#include "io/gguf/gguf.h"
#include "io/gguf/gguf_blocks.h"
#include "numerics/half.h"

namespace kaon {

namespace {

uint8_t byte_at(const std::byte* p, int i) { return static_cast<uint8_t>(p[i]); }

uint16_t word_at(const std::byte* p) {
  uint16_t word = 0;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

float half_at(const std::byte* p) { return float16_to_float32(word_at(p)); }

/// Code `i` of 32 whose low nibbles come first, then the high ones.
int nibble(const std::byte* p, int i) { return i < 16 ? byte_at(p, i) & 15 : byte_at(p, i - 16) >> 4; }

constexpr int kSmall = 32;   // elements of a block of the Q*_0 and Q*_1 types
constexpr int kSuper = 256;  // and of the K types

// d, 16 bytes of codes
void q4_0(const std::byte* p, float* out) {
  const float d = half_at(p);
  for (int i = 0; i < kSmall; ++i) out[i] = d * static_cast<float>(nibble(p + 2, i) - 8);
}

// d, m, 16 bytes of codes
void q4_1(const std::byte* p, float* out) {
  const float d = half_at(p), m = half_at(p + 2);
  for (int i = 0; i < kSmall; ++i) out[i] = d * static_cast<float>(nibble(p + 4, i)) + m;
}

int fifth_bit(const std::byte* high, int i) { return ((byte_at(high, i / 8) >> (i % 8)) & 1) << 4; }

// d, 32 high bits, 16 bytes of low nibbles
void q5_0(const std::byte* p, float* out) {
  const float d = half_at(p);
  for (int i = 0; i < kSmall; ++i) out[i] = d * static_cast<float>((nibble(p + 6, i) | fifth_bit(p + 2, i)) - 16);
}

// d, m, 32 high bits, 16 bytes of low nibbles
void q5_1(const std::byte* p, float* out) {
  const float d = half_at(p), m = half_at(p + 2);
  for (int i = 0; i < kSmall; ++i) out[i] = d * static_cast<float>(nibble(p + 8, i) | fifth_bit(p + 4, i)) + m;
}

// d, 32 int8
void q8_0(const std::byte* p, float* out) {
  const float d = half_at(p);
  for (int i = 0; i < kSmall; ++i) out[i] = static_cast<float>(static_cast<int8_t>(byte_at(p + 2, i))) * d;
}

/// Two-bit code `i` of 256: 32 bytes hold 128 of them, 32 at each shift.
int two_bits(const std::byte* p, int i) { return (byte_at(p, i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2)) & 3; }

// 16 bytes of scale and minimum nibbles, 64 bytes of codes, d, dmin
void q2_k(const std::byte* p, float* out) {
  const float d = half_at(p + 80), dmin = half_at(p + 82);
  for (int i = 0; i < kSuper; ++i) {
    const uint8_t scale = byte_at(p, i / 16);
    const float dl = d * static_cast<float>(scale & 15), ml = dmin * static_cast<float>(scale >> 4);
    out[i] = dl * static_cast<float>(two_bits(p + 16, i)) - ml;
  }
}

// 32 bytes of high bits, 64 bytes of codes, 12 bytes of 6-bit scales, d
void q3_k(const std::byte* p, float* out) {
  const float d = half_at(p + 108);
  const std::byte* scales = p + 96;
  for (int i = 0; i < kSuper; ++i) {
    const int group = i / 16;
    const int low = (byte_at(scales, group % 8) >> (group / 8 * 4)) & 15;
    const int high = (byte_at(scales, 8 + group % 4) >> (group / 4 * 2)) & 3;
    const float dl = d * static_cast<float>((low | high << 4) - 32);
    const int bit = (byte_at(p, i % 32) >> (i / 32)) & 1;
    out[i] = dl * static_cast<float>(two_bits(p + 32, i) - (bit == 0 ? 4 : 0));
  }
}

/// Scale and minimum of group `j` of 8, 6 bits each in 12 bytes.
struct ScaleMin {
  int scale;
  int min;
};

ScaleMin scale_min(const std::byte* q, int j) {
  if (j < 4) return {byte_at(q, j) & 63, byte_at(q, j + 4) & 63};
  return {(byte_at(q, j + 4) & 15) | (byte_at(q, j - 4) >> 6) << 4, byte_at(q, j + 4) >> 4 | (byte_at(q, j) >> 6) << 4};
}

/// Nibble `i` of 256: 32 bytes hold 64 of them, 32 low ones, then 32 high ones.
int long_nibble(const std::byte* p, int i) { return (byte_at(p, i / 64 * 32 + i % 32) >> (i % 64 / 32 * 4)) & 15; }

// d, dmin, 12 bytes of scales, 128 bytes of codes
void q4_k(const std::byte* p, float* out) {
  const float d = half_at(p), dmin = half_at(p + 2);
  for (int group = 0; group < 8; ++group) {
    const ScaleMin s = scale_min(p + 4, group);
    const float dl = d * static_cast<float>(s.scale), ml = dmin * static_cast<float>(s.min);
    for (int i = group * 32; i < group * 32 + 32; ++i) {
      out[i] = dl * static_cast<float>(long_nibble(p + 16, i)) - ml;
    }
  }
}

// d, dmin, 12 bytes of scales, 32 bytes of high bits, 128 bytes of codes
void q5_k(const std::byte* p, float* out) {
  const float d = half_at(p), dmin = half_at(p + 2);
  for (int group = 0; group < 8; ++group) {
    const ScaleMin s = scale_min(p + 4, group);
    const float dl = d * static_cast<float>(s.scale), ml = dmin * static_cast<float>(s.min);
    for (int i = group * 32; i < group * 32 + 32; ++i) {
      const int bit = (byte_at(p + 16, i % 32) >> group) & 1;
      out[i] = dl * static_cast<float>(long_nibble(p + 48, i) | bit << 4) - ml;
    }
  }
}

// 128 bytes of low nibbles, 64 bytes of high pairs of bits, 16 int8 scales, d
void q6_k(const std::byte* p, float* out) {
  const float d = half_at(p + 208);
  for (int i = 0; i < kSuper; ++i) {
    const float dl = d * static_cast<float>(static_cast<int8_t>(byte_at(p + 192, i / 16)));
    const int low = (byte_at(p, i / 128 * 64 + i % 64) >> (i % 128 / 64 * 4)) & 15;
    out[i] = dl * static_cast<float>((low | two_bits(p + 128, i) << 4) - 32);
  }
}

// d, 16 bytes of codes
void iq4_nl(const std::byte* p, float* out) {
  const float d = half_at(p);
  for (int i = 0; i < kSmall; ++i) out[i] = d * kNonLinear[nibble(p + 2, i)];
}

// d, 16 high pairs of bits of the scales, 4 bytes of their low nibbles, 128 bytes of codes
void iq4_xs(const std::byte* p, float* out) {
  const float d = half_at(p);
  const int high = word_at(p + 2);
  for (int group = 0; group < 8; ++group) {
    const int low = (byte_at(p + 4, group / 2) >> (group % 2 * 4)) & 15;
    const float dl = d * static_cast<float>((low | ((high >> (2 * group)) & 3) << 4) - 32);
    for (int i = 0; i < kSmall; ++i) out[group * kSmall + i] = dl * kNonLinear[nibble(p + 8 + group * 16, i)];
  }
}

// the scale's exponent, 16 bytes of E2M1 codes
void mxfp4(const std::byte* p, float* out) {
  constexpr float kDoubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  // Half of 2^(e - 127); the two smallest are subnormal.
  const uint32_t e = byte_at(p, 0);
  const auto d = std::bit_cast<float>(e < 2 ? 0x00200000U << e : (e - 1) << 23);
  for (int i = 0; i < kSmall; ++i) out[i] = d * kDoubled[nibble(p + 1, i)];
}

}  // namespace

const std::vector<GgufType>& gguf_types() {
  static const std::vector<GgufType> types{
      {0, "F32", 1, 4, DType::Float32},
      {1, "F16", 1, 2, DType::Float16},
      {2, "Q4_0", kSmall, 18, DType::Undefined, q4_0},
      {3, "Q4_1", kSmall, 20, DType::Undefined, q4_1},
      {6, "Q5_0", kSmall, 22, DType::Undefined, q5_0},
      {7, "Q5_1", kSmall, 24, DType::Undefined, q5_1},
      {8, "Q8_0", kSmall, 34, DType::Undefined, q8_0},
      {10, "Q2_K", kSuper, 84, DType::Undefined, q2_k},
      {11, "Q3_K", kSuper, 110, DType::Undefined, q3_k},
      {12, "Q4_K", kSuper, 144, DType::Undefined, q4_k},
      {13, "Q5_K", kSuper, 176, DType::Undefined, q5_k},
      {14, "Q6_K", kSuper, 210, DType::Undefined, q6_k},
      {20, "IQ4_NL", kSmall, 18, DType::Undefined, iq4_nl},
      {23, "IQ4_XS", kSuper, 136, DType::Undefined, iq4_xs},
      {24, "I8", 1, 1, DType::Int8},
      {25, "I16", 1, 2, DType::Int16},
      {26, "I32", 1, 4, DType::Int32},
      {27, "I64", 1, 8, DType::Int64},
      {28, "F64", 1, 8, DType::Float64},
      {30, "BF16", 1, 2, DType::BFloat16},
      {39, "MXFP4", kSmall, 17, DType::Undefined, mxfp4},
  };
  return types;
}

}  // namespace kaon
