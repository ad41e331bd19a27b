// Rounding to integers in SIMD, shared by the kernels. Included once for each target.
#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "numerics/quantize.h"
#include "numerics/random.h"

#if defined(KAON_NUMERICS_ROUNDING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KAON_NUMERICS_ROUNDING_INL_H_
#undef KAON_NUMERICS_ROUNDING_INL_H_
#else
#define KAON_NUMERICS_ROUNDING_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace kaon::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using BitsTag = hn::RebindToUnsigned<FloatTag>;
using Floats = hn::Vec<FloatTag>;
using FloatBits = hn::Vec<BitsTag>;

/// A magnitude rounded to an integer; `sign` gives Floor and Ceil their direction, `u` is Stochastic's random number.
template <Rounding kRounding>
HWY_INLINE Floats round_magnitude(Floats magnitude, Floats sign, Floats u) {
  const FloatTag d;
  if constexpr (kRounding == Rounding::HalfEven) {
    return hn::Round(magnitude);
  } else {
    const Floats below = hn::Floor(magnitude);
    const Floats fraction = hn::Sub(magnitude, below);
    const Floats above = hn::Add(below, hn::Set(d, 1.0f));
    if constexpr (kRounding == Rounding::HalfAway) {
      return hn::IfThenElse(hn::Ge(fraction, hn::Set(d, 0.5f)), above, below);
    } else if constexpr (kRounding == Rounding::Stochastic) {
      return hn::IfThenElse(hn::Gt(fraction, u), above, below);
    } else {
      const Floats away = hn::IfThenElse(hn::Gt(fraction, hn::Zero(d)), above, below);
      const auto negative = hn::Lt(sign, hn::Zero(d));
      return kRounding == Rounding::Floor ? hn::IfThenElse(negative, away, below)
                                          : hn::IfThenElse(negative, below, away);
    }
  }
}

/// The sign of `sign` on a magnitude.
HWY_INLINE Floats with_sign(Floats magnitude, Floats sign) {
  const FloatTag d;
  return hn::Or(magnitude, hn::And(sign, hn::SignBit(d)));
}

HWY_INLINE FloatBits mix_bits(FloatBits h) {
  const BitsTag d;
  h = hn::Xor(h, hn::ShiftRight<16>(h));
  h = hn::Mul(h, hn::Set(d, 0x85ebca6bu));
  h = hn::Xor(h, hn::ShiftRight<13>(h));
  h = hn::Mul(h, hn::Set(d, 0xc2b2ae35u));
  return hn::Xor(h, hn::ShiftRight<16>(h));
}

/// random_unit(seed, index …) for `count` elements into `u`, which has room for a whole vector past them.
inline void fill_random(uint64_t seed, int64_t index, int64_t count, float* HWY_RESTRICT u) {
  const FloatTag d;
  const BitsTag du;
  const hn::RebindToSigned<FloatTag> di;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (const int64_t end = index + count; index < end;) {
    const RandomKey key(seed, static_cast<uint64_t>(index));
    const int64_t stop = std::min(end, (index | 0xffffffff) + 1);  // the key holds while the high half stays
    for (int64_t i = 0; i < stop - index; i += lanes) {
      const FloatBits low = hn::Iota(du, static_cast<uint32_t>(index + i));
      const FloatBits mixed =
          mix_bits(hn::Add(mix_bits(hn::Xor(low, hn::Set(du, key.first))), hn::Set(du, key.second)));
      const auto k = hn::BitCast(di, hn::ShiftRight<8>(mixed));
      hn::StoreU(hn::Mul(hn::ConvertTo(d, k), hn::Set(d, 0x1p-24f)), d, u + i);
    }
    u += stop - index;
    index = stop;
  }
}

}  // namespace
}  // namespace kaon::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
