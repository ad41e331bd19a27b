// Codecs in SIMD: a number to the nearest one that a format holds at scale 1. Included once for each target.
#include <cmath>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "numerics/format.h"
#include "numerics/rounding-inl.h"

#if defined(KAON_NUMERICS_CODECS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KAON_NUMERICS_CODECS_INL_H_
#undef KAON_NUMERICS_CODECS_INL_H_
#else
#define KAON_NUMERICS_CODECS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace kaon::HWY_NAMESPACE {
namespace {

/// Integers, seen from the zero point: code - zero_point = clamp(round(v), low, high) with low = lowest code -
/// zero_point. That holds in float32 for 32 bits too: a rounded v is a whole number of float32, and rounding the
/// bounds to float32 keeps their order with respect to every such number.
class IntegerCodec {
 public:
  struct Bounds {
    Floats low, high;
  };

  explicit IntegerCodec(const Format& format) : low_(format.integer_min()), high_(format.integer_max()) {}

  HWY_INLINE Bounds bounds(int32_t zero_point) const {
    const FloatTag d;
    return {hn::Set(d, static_cast<float>(low_ - zero_point)), hn::Set(d, static_cast<float>(high_ - zero_point))};
  }
  HWY_INLINE Bounds bounds(const int32_t* zero_point) const {
    const FloatTag d;
    HWY_ALIGN_MAX float low[HWY_MAX_BYTES / sizeof(float)], high[HWY_MAX_BYTES / sizeof(float)];
    for (size_t i = 0; i < hn::Lanes(d); ++i) {
      low[i] = static_cast<float>(low_ - zero_point[i]);
      high[i] = static_cast<float>(high_ - zero_point[i]);
    }
    return {hn::Load(d, low), hn::Load(d, high)};
  }

  /// NaN gives 0, and so does -0: integers have neither.
  template <Rounding kRounding>
  HWY_INLINE Floats run(Floats v, const Bounds& bounds, Floats u) const {
    const FloatTag d;
    v = hn::IfThenElseZero(hn::Eq(v, v), v);
    v = hn::Min(hn::Max(v, bounds.low), bounds.high);
    Floats whole;
    if constexpr (kRounding == Rounding::HalfEven) {
      whole = hn::Round(v);
    } else if constexpr (kRounding == Rounding::Floor) {
      whole = hn::Floor(v);
    } else if constexpr (kRounding == Rounding::Ceil) {
      whole = hn::Ceil(v);
    } else {
      whole = with_sign(round_magnitude<kRounding>(hn::Abs(v), v, u), v);
    }
    return hn::Add(whole, hn::Zero(d));
  }

 private:
  int64_t low_, high_;
};

/// What NaN and numbers past the maximum become in a Float format.
struct FloatLimits {
  float max;
  float overflow;  // the magnitude of what is past `max` after rounding
  float nan;
  float zero;  // added to the result: turns -0 into 0 where the format has no -0

  FloatLimits(const Format& format, bool saturate)
      : max(static_cast<float>(format.max())),
        overflow(max),
        nan(std::numeric_limits<float>::quiet_NaN()),
        zero(-0.0f) {
    if (format.specials == FloatSpecials::Finite) {
      nan = 0;
    } else if (!saturate) {
      overflow = format.specials == FloatSpecials::Ieee ? std::numeric_limits<float>::infinity() : nan;
    }
    if (format.specials == FloatSpecials::NegZeroNan) zero = 0.0f;
  }

  HWY_INLINE Floats apply(Floats magnitude, Floats v) const {
    const FloatTag d;
    const Floats limited = hn::IfThenElse(hn::Gt(magnitude, hn::Set(d, max)), hn::Set(d, overflow), magnitude);
    const Floats y = hn::Add(with_sign(limited, v), hn::Set(d, zero));
    return hn::IfThenElse(hn::Eq(v, v), y, hn::Set(d, nan));
  }
};

/// Float formats with a smaller exponent range than float32's: v is scaled so that the spacing of the format's
/// numbers around it becomes 1, rounded, and scaled back; both factors are powers of two made from v's exponent.
class NarrowFloatCodec {
 public:
  static bool fits(const Format& format) { return 128 - format.bias > format.mantissa_bits && format.max() <= 0x1p125; }

  NarrowFloatCodec(const Format& format, bool saturate)
      : limits_(format, saturate),
        clamp_(limits_.overflow == limits_.max ? limits_.max : std::ldexp(1.0f, std::ilogb(limits_.max) + 2)),
        lowest_(static_cast<uint32_t>(128 - format.bias) << 23),
        up_(static_cast<uint32_t>(254 + format.mantissa_bits) << 23),
        down_(static_cast<uint32_t>(format.mantissa_bits) << 23) {}

  template <Rounding kRounding>
  HWY_INLINE Floats run(Floats v, Floats u) const {
    const FloatTag d;
    const BitsTag du;
    const Floats magnitude = hn::Min(hn::Abs(v), hn::Set(d, clamp_));
    const FloatBits exponent =
        hn::Max(hn::And(hn::BitCast(du, magnitude), hn::Set(du, 0x7f800000u)), hn::Set(du, lowest_));
    const Floats up = hn::BitCast(d, hn::Sub(hn::Set(du, up_), exponent));
    const Floats down = hn::BitCast(d, hn::Sub(exponent, hn::Set(du, down_)));
    return limits_.apply(hn::Mul(round_magnitude<kRounding>(hn::Mul(magnitude, up), v, u), down), v);
  }

 private:
  FloatLimits limits_;
  float clamp_;
  uint32_t lowest_, up_, down_;
};

/// Float formats with float32's exponents (bfloat16): the upper bits of float32, subnormal numbers included.
class WideFloatCodec {
 public:
  static bool fits(const Format& format) {
    return format.exponent_bits == 8 && format.bias == 127 && format.mantissa_bits < 23;
  }

  WideFloatCodec(const Format& format, bool saturate) : limits_(format, saturate), drop_(23 - format.mantissa_bits) {}

  template <Rounding kRounding>
  HWY_INLINE Floats run(Floats v, Floats u) const {
    const FloatTag d;
    const BitsTag du;
    const hn::RebindToSigned<FloatTag> di;
    const FloatBits bits = hn::BitCast(du, hn::Abs(v));
    const FloatBits mask = hn::Set(du, (1u << drop_) - 1);
    const FloatBits kept = hn::AndNot(mask, bits);
    const FloatBits one = hn::Set(du, 1u << drop_);
    FloatBits rounded;
    if constexpr (kRounding == Rounding::HalfEven) {
      const FloatBits odd = hn::And(hn::ShiftRightSame(bits, drop_), hn::Set(du, 1u));
      rounded = hn::AndNot(mask, hn::Add(bits, hn::Add(odd, hn::Set(du, (1u << (drop_ - 1)) - 1))));
    } else if constexpr (kRounding == Rounding::HalfAway) {
      rounded = hn::AndNot(mask, hn::Add(bits, hn::Set(du, 1u << (drop_ - 1))));
    } else if constexpr (kRounding == Rounding::Stochastic) {
      const Floats fraction =
          hn::Mul(hn::ConvertTo(d, hn::BitCast(di, hn::And(bits, mask))), hn::Set(d, std::ldexp(1.0f, -drop_)));
      rounded = hn::Add(kept, hn::IfThenElseZero(hn::RebindMask(du, hn::Gt(fraction, u)), one));
    } else {
      const FloatBits away = hn::AndNot(mask, hn::Add(bits, mask));
      const auto negative = hn::RebindMask(du, hn::Lt(v, hn::Zero(d)));
      rounded =
          kRounding == Rounding::Floor ? hn::IfThenElse(negative, away, kept) : hn::IfThenElse(negative, kept, away);
    }
    return limits_.apply(hn::BitCast(d, rounded), v);
  }

 private:
  FloatLimits limits_;
  int drop_;
};

}  // namespace
}  // namespace kaon::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
