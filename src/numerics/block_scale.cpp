#include "numerics/block_scale.h"

#include <cfloat>
#include <cmath>

namespace kaon {

BlockScaling::BlockScaling(const Format& format, BlockScaleMode mode)
    : e8m0_(format.scale == ScaleType::E8M0), scale_codec_(kaon::format("fp8_e4m3")) {
  const Format& element = kaon::format(format.element);
  element_max_ = static_cast<float>(format.max());
  if (format.global_scale) global_numerator_ = static_cast<float>(kaon::format("fp8_e4m3").max()) * element_max_;
  if (format.widen_on_overflow) mode = BlockScaleMode::Floor;
  const int mantissa_bits = element.kind == FormatKind::Integer ? element.bits - 2 : element.mantissa_bits;
  emax_ = std::ilogb(format.max());
  if (mode == BlockScaleMode::Even) addend_ = 1u << (23 - mantissa_bits - 1);
  if (mode == BlockScaleMode::Ceil) {
    addend_ = 0x7fffff;
    lowest_bits_ = std::bit_cast<uint32_t>(0x1p-127f);
  }
  for (int code = 0; code < 256; ++code) {
    scales_[code] = e8m0_ ? std::ldexp(1.0f, code - 127 + format.element_exponent)
                          : scale_codec_.decode(static_cast<uint32_t>(code));
  }
  if (e8m0_) scales_[255] = std::bit_cast<float>(0x7fc00000u);
}

float BlockScaling::global_scale(float amax) const {
  if (global_numerator_ == 0 || amax == 0) return 1;
  return std::min(global_numerator_ / amax, FLT_MAX);
}

}  // namespace kaon
