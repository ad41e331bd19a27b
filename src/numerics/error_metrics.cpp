#include "numerics/error_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "numerics/check.h"
#include "numerics/float_blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numerics/error_metrics.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#ifndef KAON_NUMERICS_ERROR_METRICS_ONCE
#define KAON_NUMERICS_ERROR_METRICS_ONCE
namespace kaon {
namespace {
constexpr double kRelativeEpsilon = 1e-12;
}
}  // namespace kaon
#endif

HWY_BEFORE_NAMESPACE();
namespace kaon::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
struct Sums {
  hn::Vec<D> error, squared, relative, reference, energy, product, max;

  explicit Sums(D d) { error = squared = relative = reference = energy = product = max = hn::Zero(d); }

  HWY_INLINE void add(D d, hn::Vec<D> x, hn::Vec<D> r) {
    const auto e = hn::Sub(x, r);
    const auto magnitude = hn::Abs(e);
    error = hn::Add(error, e);
    squared = hn::MulAdd(e, e, squared);
    relative = hn::Add(relative, hn::Div(magnitude, hn::Add(hn::Abs(r), hn::Set(d, kRelativeEpsilon))));
    reference = hn::MulAdd(r, r, reference);
    energy = hn::MulAdd(x, x, energy);
    product = hn::MulAdd(x, r, product);
    max = hn::Max(max, magnitude);
  }
};

/// sum_error is not finite where a value is not; the rest then means nothing.
void sums_of(const float* HWY_RESTRICT x, const float* HWY_RESTRICT r, int64_t count, ErrorMetrics& out) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  Sums sums(d);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    sums.add(d, hn::PromoteTo(d, hn::LoadU(df, x + i)), hn::PromoteTo(d, hn::LoadU(df, r + i)));
  }
  if (i < count) {  // zeros add nothing
    float last_x[HWY_MAX_BYTES / sizeof(double)] = {};
    float last_r[HWY_MAX_BYTES / sizeof(double)] = {};
    std::copy(x + i, x + count, last_x);
    std::copy(r + i, r + count, last_r);
    sums.add(d, hn::PromoteTo(d, hn::LoadU(df, last_x)), hn::PromoteTo(d, hn::LoadU(df, last_r)));
  }
  out.count = count;
  out.max_abs_error = hn::GetLane(hn::MaxOfLanes(d, sums.max));
  out.sum_error = hn::GetLane(hn::SumOfLanes(d, sums.error));
  out.sum_squared_error = hn::GetLane(hn::SumOfLanes(d, sums.squared));
  out.sum_relative_error = hn::GetLane(hn::SumOfLanes(d, sums.relative));
  out.reference_energy = hn::GetLane(hn::SumOfLanes(d, sums.reference));
  out.energy = hn::GetLane(hn::SumOfLanes(d, sums.energy));
  out.product = hn::GetLane(hn::SumOfLanes(d, sums.product));
}

}  // namespace
}  // namespace kaon::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kaon {
namespace {

HWY_EXPORT(sums_of);

/// At most kBlock pairs.
ErrorMetrics of_block(const float* x, const float* r, int64_t count) {
  ErrorMetrics result;
  HWY_DYNAMIC_DISPATCH(sums_of)(x, r, count, result);
  if (std::isfinite(result.sum_error)) return result;

  float finite_x[kBlock], finite_r[kBlock];
  int64_t kept = 0, broken = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (std::isfinite(x[i]) && std::isfinite(r[i])) {
      finite_x[kept] = x[i];
      finite_r[kept++] = r[i];
    } else if (std::isfinite(r[i])) {
      ++broken;
    }
  }
  HWY_DYNAMIC_DISPATCH(sums_of)(finite_x, finite_r, kept, result);
  result.skipped = count - kept;
  result.broken = broken;
  return result;
}

}  // namespace

void ErrorMetrics::update(FloatView x, FloatView reference) {
  check_view(x, "x");
  check_view(reference, "reference");
  check_size(x.size, reference.size, "x");
  std::vector<ErrorMetrics> chunks(static_cast<size_t>((x.size + kChunk - 1) / kChunk));
  parallel_for(0, std::ssize(chunks), 1, [&](int64_t begin, int64_t end) {
    float scratch_x[kBlock], scratch_r[kBlock];
    for (int64_t i = begin * kChunk; i < std::min(x.size, end * kChunk); i += kBlock) {
      const int64_t length = std::min(kBlock, x.size - i);
      chunks[static_cast<size_t>(i / kChunk)].merge(
          of_block(load_floats(x, i, length, scratch_x), load_floats(reference, i, length, scratch_r), length));
    }
  });
  for (const ErrorMetrics& chunk : chunks) merge(chunk);
}

void ErrorMetrics::merge(const ErrorMetrics& other) {
  count += other.count;
  skipped += other.skipped;
  broken += other.broken;
  max_abs_error = std::max(max_abs_error, other.max_abs_error);
  sum_error += other.sum_error;
  sum_squared_error += other.sum_squared_error;
  sum_relative_error += other.sum_relative_error;
  reference_energy += other.reference_energy;
  energy += other.energy;
  product += other.product;
}

namespace {
double mean_of(double sum, int64_t count) {
  return count == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(count);
}
}  // namespace

double ErrorMetrics::mse() const { return mean_of(sum_squared_error, count); }
double ErrorMetrics::mean_error() const { return mean_of(sum_error, count); }
double ErrorMetrics::mean_relative_error() const { return mean_of(sum_relative_error, count); }
double ErrorMetrics::max_abs() const { return count == 0 ? mean_of(0, 0) : max_abs_error; }

double ErrorMetrics::sqnr_db() const {
  if (count == 0) return std::numeric_limits<double>::quiet_NaN();
  if (sum_squared_error == 0) return std::numeric_limits<double>::infinity();
  return 10 * std::log10(reference_energy / sum_squared_error);
}

double ErrorMetrics::cosine() const {
  if (count == 0) return std::numeric_limits<double>::quiet_NaN();
  if (energy == 0 && reference_energy == 0) return 1;
  if (energy == 0 || reference_energy == 0) return 0;
  return std::clamp(product / std::sqrt(energy * reference_energy), -1.0, 1.0);
}

}  // namespace kaon
#endif
