#include "numerics/float_blocks.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "numerics/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numerics/float_blocks.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kaon::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

BlockRange range_of(const float* HWY_RESTRICT values, int64_t count) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  float low = values[0], high = values[0], total = 0;
  int64_t i = 0;
  if (count >= 4 * lanes) {
    auto min0 = hn::LoadU(d, values), min1 = min0, max0 = min0, max1 = min0;
    auto sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
    for (; i + 4 * lanes <= count; i += 4 * lanes) {
      const auto v0 = hn::LoadU(d, values + i);
      const auto v1 = hn::LoadU(d, values + i + lanes);
      const auto v2 = hn::LoadU(d, values + i + 2 * lanes);
      const auto v3 = hn::LoadU(d, values + i + 3 * lanes);
      min0 = hn::Min(min0, hn::Min(v0, v1));
      min1 = hn::Min(min1, hn::Min(v2, v3));
      max0 = hn::Max(max0, hn::Max(v0, v1));
      max1 = hn::Max(max1, hn::Max(v2, v3));
      sum0 = hn::Add(sum0, v0);
      sum1 = hn::Add(sum1, v1);
      sum2 = hn::Add(sum2, v2);
      sum3 = hn::Add(sum3, v3);
    }
    low = hn::GetLane(hn::MinOfLanes(d, hn::Min(min0, min1)));
    high = hn::GetLane(hn::MaxOfLanes(d, hn::Max(max0, max1)));
    total = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
  }
  for (; i < count; ++i) {
    low = std::min(low, values[i]);
    high = std::max(high, values[i]);
    total += values[i];
  }
  return {low + 0.0f, high + 0.0f, total};  // -0 becomes 0
}

// Positive floats are ordered as their bits are, and integers are what compilers vectorize here.
void raise_amax_of(const float* HWY_RESTRICT values, int64_t count, int64_t tile, int64_t offset, float* amax) {
  int64_t i = 0;
  for (int64_t at = 0; i < count; ++at) {
    const int64_t end = std::min(count, (at + 1) * tile - offset);
    int32_t most = std::bit_cast<int32_t>(amax[at]);
    for (; i < end; ++i) {
      const int32_t magnitude = std::bit_cast<int32_t>(values[i]) & 0x7fffffff;
      most = std::max(most, magnitude < 0x7f800000 ? magnitude : 0);
    }
    amax[at] = std::bit_cast<float>(most);
  }
}

// Written out because Highway's own promotion turns Inf and NaN into numbers on targets without F16C.
void convert_half(const uint16_t* HWY_RESTRICT in, int64_t count, float* HWY_RESTRICT out) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::Rebind<uint16_t, decltype(d)> dh;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto exponent_mask = hn::Set(du, 0x7c00u << 13);
  const auto rebias = hn::Set(du, 112u << 23);
  const auto implicit_one = hn::Set(d, 0x1p-14f);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto half = hn::PromoteTo(du, hn::LoadU(dh, in + i));
    const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(du, 0x8000u)));
    const auto magnitude = hn::ShiftLeft<13>(hn::And(half, hn::Set(du, 0x7fffu)));
    const auto exponent = hn::And(magnitude, exponent_mask);
    const auto special = hn::VecFromMask(du, hn::Eq(exponent, exponent_mask));
    const auto normal = hn::Add(hn::Add(magnitude, rebias), hn::And(special, rebias));
    const auto with_one = hn::BitCast(d, hn::Add(magnitude, hn::Set(du, 113u << 23)));
    const auto subnormal = hn::BitCast(du, hn::Sub(with_one, implicit_one));
    const auto bits = hn::IfThenElse(hn::Eq(exponent, hn::Zero(du)), subnormal, normal);
    hn::StoreU(hn::BitCast(d, hn::Or(bits, sign)), d, out + i);
  }
  for (; i < count; ++i) out[i] = float16_to_float32(in[i]);
}

void convert_bfloat(const uint16_t* HWY_RESTRICT in, int64_t count, float* HWY_RESTRICT out) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::Rebind<uint16_t, decltype(d)> dh;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto bits = hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(dh, in + i)));
    hn::StoreU(hn::BitCast(d, bits), d, out + i);
  }
  for (; i < count; ++i) out[i] = bfloat16_to_float32(in[i]);
}

}  // namespace
}  // namespace kaon::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kaon {

HWY_EXPORT(range_of);
HWY_EXPORT(raise_amax_of);
HWY_EXPORT(convert_half);
HWY_EXPORT(convert_bfloat);

void NonFinite::merge(const NonFinite& other) {
  nan += other.nan;
  pos_inf += other.pos_inf;
  neg_inf += other.neg_inf;
}

void check_view(const FloatView& view, std::string_view what) {
  if (view.size < 0) fail(ErrorCode::InvalidInput, std::string(what), "has {} elements; 0 or more expected", view.size);
  if (view.size > 0 && view.data == nullptr) {
    fail(ErrorCode::InvalidInput, std::string(what), "has {} elements but no data", view.size);
  }
}

const float* load_floats(const FloatView& in, int64_t begin, int64_t count, float* scratch) {
  if (in.type == FloatView::Type::Float32) {
    const auto* bytes = static_cast<const std::byte*>(in.data) + begin * static_cast<int64_t>(sizeof(float));
    if (reinterpret_cast<uintptr_t>(bytes) % alignof(float) == 0) return reinterpret_cast<const float*>(bytes);
    std::memcpy(scratch, bytes, static_cast<size_t>(count) * sizeof(float));
    return scratch;
  }
  const auto* bytes = static_cast<const std::byte*>(in.data) + begin * static_cast<int64_t>(sizeof(uint16_t));
  const auto* halves = reinterpret_cast<const uint16_t*>(bytes);
  uint16_t aligned[kBlock];
  if (reinterpret_cast<uintptr_t>(bytes) % alignof(uint16_t) != 0) {
    std::memcpy(aligned, bytes, static_cast<size_t>(count) * sizeof(uint16_t));
    halves = aligned;
  }
  if (in.type == FloatView::Type::Float16) {
    HWY_DYNAMIC_DISPATCH(convert_half)(halves, count, scratch);
  } else {
    HWY_DYNAMIC_DISPATCH(convert_bfloat)(halves, count, scratch);
  }
  return scratch;
}

BlockRange block_range(const float* values, int64_t count) { return HWY_DYNAMIC_DISPATCH(range_of)(values, count); }

void raise_amax(const float* values, int64_t count, int64_t tile, int64_t offset, float* amax) {
  HWY_DYNAMIC_DISPATCH(raise_amax_of)(values, count, tile, offset, amax);
}

int64_t keep_finite(const float* values, int64_t count, float* out, NonFinite& others) {
  int64_t kept = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float value = values[i];
    out[kept] = value;
    if (std::isfinite(value)) {
      ++kept;
    } else if (std::isnan(value)) {
      ++others.nan;
    } else if (value > 0) {
      ++others.pos_inf;
    } else {
      ++others.neg_inf;
    }
  }
  return kept;
}

}  // namespace kaon
#endif
