#include "numerics/exponentials.h"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numerics/exponentials.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
//
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kaon::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

float maximum(const float* HWY_RESTRICT x, int64_t count) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  float most = x[0];
  int64_t i = 0;
  if (count >= lanes) {
    auto top = hn::LoadU(d, x);
    auto other = top;
    auto broken = hn::IsNaN(top);
    for (i = lanes; i + 2 * lanes <= count; i += 2 * lanes) {
      const auto a = hn::LoadU(d, x + i);
      const auto b = hn::LoadU(d, x + i + lanes);
      top = hn::Max(top, a);
      other = hn::Max(other, b);
      broken = hn::Or(broken, hn::Or(hn::IsNaN(a), hn::IsNaN(b)));
    }
    if (!hn::AllFalse(d, broken)) return std::numeric_limits<float>::quiet_NaN();
    most = hn::GetLane(hn::MaxOfLanes(d, hn::Max(top, other)));
  }
  for (; i < count; ++i) most = x[i] > most || std::isnan(x[i]) ? x[i] : most;
  return most;
}

/// `y` may be null: then only the sum is wanted.
float exponentials_of(const float* x, float* y, int64_t count, float top) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto shift = hn::Set(d, top);
  auto sums = hn::Zero(d);
  int64_t i = 0;
  if (y == nullptr) {
    for (; i + lanes <= count; i += lanes) sums = hn::Add(sums, hn::Exp(d, hn::Sub(hn::LoadU(d, x + i), shift)));
  }
  for (; i + lanes <= count; i += lanes) {
    const auto e = hn::Exp(d, hn::Sub(hn::LoadU(d, x + i), shift));
    hn::StoreU(e, d, y + i);
    sums = hn::Add(sums, e);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, sums));
  if (i < count) {
    float last[HWY_MAX_BYTES / sizeof(float)] = {};
    std::copy(x + i, x + count, last);
    const auto rest = hn::FirstN(d, static_cast<size_t>(count - i));
    const auto e = hn::IfThenElseZero(rest, hn::Exp(d, hn::Sub(hn::LoadU(d, last), shift)));
    sum += hn::GetLane(hn::SumOfLanes(d, e));
    if (y != nullptr) {
      hn::StoreU(e, d, last);
      std::copy(last, last + (count - i), y + i);
    }
  }
  return sum;
}

}  // namespace
}  // namespace kaon::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kaon {
namespace {

HWY_EXPORT(maximum);
HWY_EXPORT(exponentials_of);

}  // namespace

float row_maximum(const float* x, int64_t count) { return HWY_DYNAMIC_DISPATCH(maximum)(x, count); }

float exponentials(const float* x, float* y, int64_t count, float top) {
  return HWY_DYNAMIC_DISPATCH(exponentials_of)(x, y, count, top);
}

double log_sum_exp(std::span<const float> row) {
  constexpr int64_t kBlock = 512;
  const float top = row_maximum(row.data(), std::ssize(row));
  if (!std::isfinite(top)) return top;
  double sum = 0;
  for (int64_t i = 0; i < std::ssize(row); i += kBlock) {
    sum += HWY_DYNAMIC_DISPATCH(exponentials_of)(row.data() + i, nullptr, std::min(kBlock, std::ssize(row) - i), top);
  }
  return top + std::log(sum);
}

}  // namespace kaon
#endif
