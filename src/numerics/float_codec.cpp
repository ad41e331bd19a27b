#include "numerics/float_codec.h"

#include <cmath>

namespace kaon {

FloatCodec::FloatCodec(const Format& format, bool saturate)
    : shift_(23 - format.mantissa_bits),
      sign_shift_(format.bits - 1),
      specials_(format.specials),
      first_normal_((127 + 1 - format.bias) << 23),
      half_((1u << (shift_ - 1)) - 1),
      normal_offset_((first_normal_ >> shift_) - (1 << format.mantissa_bits)),
      step_float_(static_cast<float>(std::ldexp(format.smallest(), 23))),
      step_bits_(std::bit_cast<int32_t>(step_float_)) {
  const int32_t codes = 1 << sign_shift_;  // of one sign
  const int32_t top_exponent = codes - (1 << format.mantissa_bits);
  zero_sign_ = ~0u;
  nan_sign_ = ~0u;
  switch (specials_) {
    case FloatSpecials::Ieee:
      max_code_ = top_exponent - 1;
      overflow_ = top_exponent;
      nan_ = static_cast<uint32_t>(top_exponent | 1 << (format.mantissa_bits - 1));
      break;
    case FloatSpecials::NanOnly:
      max_code_ = codes - 2;
      overflow_ = codes - 1;
      nan_ = static_cast<uint32_t>(overflow_);
      break;
    case FloatSpecials::NegZeroNan:
      max_code_ = codes - 1;
      overflow_ = codes;
      nan_ = static_cast<uint32_t>(codes);
      zero_sign_ = 0;
      break;
    case FloatSpecials::Finite:
      max_code_ = codes - 1;
      overflow_ = max_code_;
      nan_ = 0;
      nan_sign_ = 0;
      break;
  }
  if (saturate) overflow_ = max_code_;
}

float FloatCodec::decode(uint32_t code) const {
  const uint32_t sign = code >> sign_shift_ & 1;
  const uint32_t low = code & ((1u << sign_shift_) - 1);
  const uint32_t mantissa_mask = (1u << (23 - shift_)) - 1;
  if (specials_ == FloatSpecials::NegZeroNan && sign != 0 && low == 0) return std::bit_cast<float>(0x7fc00000u);
  uint32_t bits = 0;
  if (static_cast<int32_t>(low) > max_code_) {
    const bool infinite = specials_ == FloatSpecials::Ieee && (low & mantissa_mask) == 0;
    bits = infinite ? 0x7f800000u : 0x7fc00000u;
  } else if (low <= mantissa_mask) {
    bits = std::bit_cast<uint32_t>(static_cast<float>(low) * (step_float_ * 0x1p-23f));
  } else {
    bits = (low + static_cast<uint32_t>(normal_offset_)) << shift_;
  }
  return std::bit_cast<float>(sign << 31 | bits);
}

}  // namespace kaon
