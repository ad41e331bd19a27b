#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>

#include "numerics/float_codec.h"
#include "numerics/quantize.h"

namespace kaon {

/// The scale of one block from its absmax over the finite elements (NaN and Inf have no say), for Block formats:
/// everything the descriptor says, resolved once. With a block's scale s = scale(code) and the tensor's global scale g,
///   element = encode(x · g / s),  value = decode(element) · s / g.
/// A scale of 0 (nvfp4 alone) makes every element of its block code 0.
struct BlockScaling {
  BlockScaling(const Format& format, BlockScaleMode mode);

  /// The scale's code. For formats that widen on overflow, the caller may have to add 1.
  uint8_t code(float amax, float global_scale) const {
    if (e8m0_) return e8m0_code(amax);
    return static_cast<uint8_t>(scale_codec_.encode<Rounding::HalfEven>(global_scale * amax / element_max_, 0));
  }
  /// What elements are divided by; E8M0 includes the element's own exponent (2^-6 for mxint8), and 0xff is NaN.
  float scale(uint8_t code) const { return scales_[code]; }
  /// 448 · 6 / amax for nvfp4, at most FLT_MAX and 1 for amax 0; 1 for other formats.
  float global_scale(float amax) const;

 private:
  uint8_t e8m0_code(float amax) const {
    const uint32_t bits = std::bit_cast<uint32_t>(amax);
    // The exponent field stands still below 2^-126, which only Ceil with emax 0 can tell.
    if (bits <= lowest_bits_) return 0;
    const int field = static_cast<int>((bits + addend_) >> 23);
    return static_cast<uint8_t>(std::clamp(field - emax_, 0, 254));
  }

  bool e8m0_;
  FloatCodec scale_codec_;
  int emax_ = 0;
  uint32_t addend_ = 0;
  uint32_t lowest_bits_ = 0;
  float element_max_ = 0;
  float global_numerator_ = 0;
  float scales_[256];
};

}  // namespace kaon
