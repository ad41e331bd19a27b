#include "numerics/histogram.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "base/error.h"
#include "base/parallel.h"
#include "numerics/scale.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numerics/histogram.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#ifndef KAON_NUMERICS_HISTOGRAM_ONCE
#define KAON_NUMERICS_HISTOGRAM_ONCE
namespace kaon {
namespace {

/// Neighbours go to different tables, so that equal ones do not wait for each other's store.
constexpr int64_t kTables = 4;

}  // namespace
}  // namespace kaon
#endif

HWY_BEFORE_NAMESPACE();
namespace kaon::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

/// Counts value i in table i % kTables. The product with a power of two is exact, or below 1 in magnitude.
void count_bins(const float* HWY_RESTRICT values, int64_t count, float inverse_width, int32_t first,
                uint16_t* HWY_RESTRICT tables, int64_t stride) {
  constexpr int64_t kBatch = 512;
  alignas(64) int32_t index[kBatch];
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto inverse = hn::Set(d, inverse_width);
  const auto origin = hn::Set(di, first);
  uint16_t* HWY_RESTRICT table0 = tables;
  uint16_t* HWY_RESTRICT table1 = tables + stride;
  uint16_t* HWY_RESTRICT table2 = tables + 2 * stride;
  uint16_t* HWY_RESTRICT table3 = tables + 3 * stride;
  int64_t i = 0;
  for (; i + kBatch <= count; i += kBatch) {
    for (int64_t j = 0; j < kBatch; j += lanes) {
      const auto v = hn::LoadU(d, values + i + j);
      const auto truncated = hn::ConvertTo(di, hn::Mul(v, inverse));
      const auto negative = hn::BitCast(di, hn::VecFromMask(d, hn::Lt(v, hn::Zero(d))));
      hn::Store(hn::Add(hn::Sub(truncated, origin), negative), di, index + j);
    }
    for (int64_t j = 0; j < kBatch; j += 4) {
      ++table0[index[j]];
      ++table1[index[j + 1]];
      ++table2[index[j + 2]];
      ++table3[index[j + 3]];
    }
  }
  for (; i < count; ++i) {
    const int32_t bin = static_cast<int32_t>(values[i] * inverse_width) - (values[i] < 0 ? 1 : 0);
    ++tables[(i % kTables) * stride + bin - first];
  }
}

}  // namespace
}  // namespace kaon::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kaon {
namespace {

HWY_EXPORT(count_bins);

/// The width of the narrowest bins: the smallest normal float32.
constexpr int kMinExponent = -126;

int64_t bin_of(float value, int exponent) {
  const auto magnitude = static_cast<int64_t>(std::ldexp(std::fabs(static_cast<double>(value)), -exponent));
  return value < 0 ? -1 - magnitude : magnitude;
}

/// The bin k of a width 2^e becomes k >> shift at the width 2^(e + shift).
int64_t coarser(int64_t bin, int shift) { return bin >> std::min(shift, 62); }

double quantile_of(std::span<const int64_t> counts, double q, double first_edge, double width, double min, double max) {
  if (!(q >= 0 && q <= 1)) fail(ErrorCode::InvalidInput, "q", "q is {}; it must be from 0 to 1", q);
  int64_t total = 0;
  for (const int64_t count : counts) total += count;
  if (total == 0) return 0;
  const double rank = q * static_cast<double>(total);
  int64_t below = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0 && static_cast<double>(below + counts[i]) >= rank) {
      const double share = (rank - static_cast<double>(below)) / static_cast<double>(counts[i]);
      // The outer bins reach only as far as the data do.
      const double low = std::max(min, first_edge + static_cast<double>(i) * width);
      const double high = std::min(max, first_edge + static_cast<double>(i + 1) * width);
      return low + share * (high - low);
    }
    below += counts[i];
  }
  return max;
}

}  // namespace

/// Fills one histogram from one thread. Counts gather in small tables until one could overflow or the bins change.
class Histogram::Filler {
 public:
  explicit Filler(Histogram& target) : target_(target), tables_(static_cast<size_t>(kTables * target.bins_)) {}

  /// At most kBlock values.
  void add(const float* values, int64_t count) {
    BlockRange range = block_range(values, count);
    float finite[kBlock];
    if (!std::isfinite(range.sum)) {
      count = keep_finite(values, count, finite, target_.non_finite_);
      if (count == 0) return;
      values = finite;
      range = block_range(values, count);
    }
    const int64_t share = (count + kTables - 1) / kTables;
    const bool widens = range.min < target_.min_ || range.max > target_.max_;
    if (widens || pending_ + share > std::numeric_limits<uint16_t>::max()) flush();
    if (widens) target_.cover(range.min, range.max);
    HWY_DYNAMIC_DISPATCH(count_bins)
    (values, count, std::ldexp(1.0f, -target_.exponent_), static_cast<int32_t>(target_.first_), tables_.data(),
     target_.bins_);
    pending_ += share;
    target_.count_ += count;
  }

  void flush() {
    if (pending_ == 0) return;
    const uint16_t* table = tables_.data();
    const int64_t stride = target_.bins_;
    for (int64_t i = 0; i < std::ssize(target_.counts_); ++i) {
      target_.counts_[static_cast<size_t>(i)] +=
          table[i] + table[i + stride] + table[i + 2 * stride] + table[i + 3 * stride];
    }
    std::fill(tables_.begin(), tables_.end(), uint16_t{0});
    pending_ = 0;
  }

 private:
  Histogram& target_;
  std::vector<uint16_t> tables_;
  int64_t pending_ = 0;  // the most that one entry of a table can have reached
};

Histogram::Histogram(int64_t bins) : bins_(bins), exponent_(kMinExponent) {
  if (bins < 16 || bins > 65536) {
    fail(ErrorCode::InvalidInput, "bins", "bins is {}; it must be from 16 to 65536", bins);
  }
}

void Histogram::update(FloatView in) {
  check_view(in, "in");
  constexpr int64_t kGrain = 8;  // blocks that are worth a thread; counts are the same whoever counts
  const int64_t blocks = (in.size + kBlock - 1) / kBlock;
  const Range known{min_, max_};
  std::mutex mutex;
  parallel_for(0, blocks, kGrain, [&](int64_t begin, int64_t end) {
    Histogram part(bins_);
    if (known.min <= known.max) part.cover(known.min, known.max);  // so that its bins need not grow again
    Filler filler(part);
    float scratch[kBlock];
    for (int64_t i = begin * kBlock; i < std::min(in.size, end * kBlock); i += kBlock) {
      const int64_t count = std::min(kBlock, in.size - i);
      filler.add(load_floats(in, i, count, scratch), count);
    }
    filler.flush();
    const std::lock_guard lock(mutex);
    merge(part);  // in whatever order: the result is the same
  });
}

void Histogram::merge(const Histogram& other) {
  if (other.bins_ != bins_) {
    fail(ErrorCode::InvalidInput, "other", "has {} bins; this histogram has {}", other.bins_, bins_);
  }
  non_finite_.merge(other.non_finite_);
  if (other.count_ == 0) return;
  cover(other.min_, other.max_);
  const int shift = exponent_ - other.exponent_;
  for (int64_t i = 0; i < std::ssize(other.counts_); ++i) {
    counts_[static_cast<size_t>(coarser(other.first_ + i, shift) - first_)] += other.counts_[static_cast<size_t>(i)];
  }
  count_ += other.count_;
}

void Histogram::cover(float min, float max) {
  const float low = std::min(min, min_);
  const float high = std::max(max, max_);
  if (low == min_ && high == max_) return;
  min_ = low;
  max_ = high;
  const float largest = std::max(std::fabs(low), std::fabs(high));
  int exponent = exponent_;
  if (largest > 0) exponent = std::max(exponent, std::ilogb(largest) - 23);  // no narrower than float32 resolves
  while (bin_of(high, exponent) - bin_of(low, exponent) >= bins_) ++exponent;

  const int64_t first = bin_of(low, exponent);
  std::vector<int64_t> counts(static_cast<size_t>(bin_of(high, exponent) - first + 1));
  for (int64_t i = 0; i < std::ssize(counts_); ++i) {
    counts[static_cast<size_t>(coarser(first_ + i, exponent - exponent_) - first)] += counts_[static_cast<size_t>(i)];
  }
  counts_ = std::move(counts);
  first_ = first;
  exponent_ = exponent;
}

float Histogram::absmax() const { return count_ == 0 ? 0 : std::max(std::fabs(min_), std::fabs(max_)); }

double Histogram::width() const { return std::ldexp(1.0, exponent_); }

double Histogram::edge(int64_t i) const { return std::ldexp(static_cast<double>(first_ + i), exponent_); }

std::vector<double> Histogram::edges() const {
  std::vector<double> result(counts_.size() + 1);
  for (size_t i = 0; i < result.size(); ++i) result[i] = edge(static_cast<int64_t>(i));
  return result;
}

double Histogram::quantile(double q) const { return quantile_of(counts_, q, edge(0), width(), min_, max_); }

Histogram::Bins Histogram::absolute() const {
  if (count_ == 0) return {};
  const auto mirrored = [](int64_t bin) { return bin < 0 ? -1 - bin : bin; };
  const int64_t last = first_ + std::ssize(counts_) - 1;
  Bins result;
  result.first = first_ < 0 && last >= 0 ? 0 : std::min(mirrored(first_), mirrored(last));
  result.counts.resize(static_cast<size_t>(std::max(mirrored(first_), mirrored(last)) - result.first + 1));
  for (int64_t i = 0; i < std::ssize(counts_); ++i) {
    result.counts[static_cast<size_t>(mirrored(first_ + i) - result.first)] += counts_[static_cast<size_t>(i)];
  }
  return result;
}

double Histogram::absolute_quantile(double q) const {
  const double least = min_ > 0 ? min_ : max_ < 0 ? -max_ : 0;
  const Bins bins = absolute();
  return quantile_of(bins.counts, q, static_cast<double>(bins.first) * width(), width(), least, absmax());
}

}  // namespace kaon
#endif
