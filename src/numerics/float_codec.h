#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>

#include "numerics/format.h"
#include "numerics/quantize.h"

namespace kaon {

/// A Float format's encode and decode with everything from the descriptor resolved once; the results are those of
/// reference::encode and reference::decode.
class FloatCodec {
 public:
  explicit FloatCodec(const Format& format, bool saturate = true);

  /// `u` is Stochastic's random number in [0, 1).
  template <Rounding kRounding>
  uint32_t encode(float value, float u) const {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t sign = bits >> 31;
    const int32_t magnitude = static_cast<int32_t>(bits & 0x7fffffffu);
    int32_t code = 0;
    if constexpr (kRounding == Rounding::HalfEven) {
      code = nearest(magnitude);
    } else {
      code = directed<kRounding>(magnitude, sign, u);
    }
    // Selections, not branches: HalfEven is vectorized.
    code = code > max_code_ ? overflow_ : code;
    const uint32_t sign_bit = sign << sign_shift_;
    const uint32_t number = static_cast<uint32_t>(code) | (sign_bit & (code == 0 ? zero_sign_ : ~0u));
    return magnitude > 0x7f800000 ? nan_ | (sign_bit & nan_sign_) : number;
  }

  /// Only the low bits of the code count.
  float decode(uint32_t code) const;

 private:
  /// Half to even by float32's own bits: normal numbers by adding to them, subnormal ones by adding a number whose last
  /// bit is the format's smallest step. Inf and NaN come out above max_code_.
  int32_t nearest(int32_t magnitude) const {
    const auto bits = static_cast<uint32_t>(magnitude);
    const uint32_t rounded = (bits + half_ + ((bits >> shift_) & 1)) >> shift_;
    const int32_t normal = static_cast<int32_t>(rounded) - normal_offset_;
    const int32_t subnormal = std::bit_cast<int32_t>(std::bit_cast<float>(magnitude) + step_float_) - step_bits_;
    return magnitude < first_normal_ ? subnormal : normal;
  }

  /// The other roundings: the number is counted in steps of the format's spacing around it.
  template <Rounding kRounding>
  int32_t directed(int32_t magnitude, uint32_t sign, float u) const {
    if (magnitude >= 0x7f800000) return max_code_ + 1;
    // Below the first normal number the spacing stands still.
    const int32_t exponent = std::max(magnitude >> 23, first_normal_ >> 23);
    const auto per_step = std::bit_cast<double>(static_cast<uint64_t>(1023 + 127 + 23 - shift_ - exponent) << 52);
    const double steps = std::bit_cast<float>(magnitude) * per_step;
    const auto below = static_cast<int32_t>(steps);
    const double fraction = steps - below;
    bool up = false;
    if constexpr (kRounding == Rounding::HalfAway) up = fraction >= 0.5;
    if constexpr (kRounding == Rounding::Floor) up = fraction > 0 && sign != 0;
    if constexpr (kRounding == Rounding::Ceil) up = fraction > 0 && sign == 0;
    if constexpr (kRounding == Rounding::Stochastic) up = fraction > u;
    // A normal number's steps start at 2^mantissa_bits, so that they carry into the exponent by themselves.
    return ((exponent - (first_normal_ >> 23)) << (23 - shift_)) + below + up;
  }

  int shift_;  ///< mantissa bits that float32 has and the format has not
  int sign_shift_;
  FloatSpecials specials_;
  int32_t first_normal_;  ///< float32's bits of the format's first normal number
  uint32_t half_;         ///< half a step of float32's bits, less one
  int32_t normal_offset_;
  float step_float_;
  int32_t step_bits_;  ///< of step_float_
  int32_t max_code_;
  int32_t overflow_;
  uint32_t nan_;
  uint32_t zero_sign_;  ///< all ones where zero has a sign, else 0
  uint32_t nan_sign_;   ///< all ones where NaN has a sign, else 0
};

/// Calls body.template operator()<kRounding>().
template <class Body>
void with_rounding(Rounding rounding, const Body& body) {
  switch (rounding) {
    case Rounding::HalfEven: return body.template operator()<Rounding::HalfEven>();
    case Rounding::HalfAway: return body.template operator()<Rounding::HalfAway>();
    case Rounding::Floor: return body.template operator()<Rounding::Floor>();
    case Rounding::Ceil: return body.template operator()<Rounding::Ceil>();
    case Rounding::Stochastic: return body.template operator()<Rounding::Stochastic>();
  }
}

}  // namespace kaon
