#include "debug/channels.h"

#include <algorithm>
#include <cmath>

#include "base/parallel.h"

namespace kaon {
namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kGrain = 1 << 14;  // elements that a thread should have at least
constexpr int64_t kShortRun = 16;    // channels whose elements lie in shorter runs are taken column by column
constexpr int64_t kFloatSum = 256;   // that many numbers are added in float32 before they go into a double

int64_t grain_for(int64_t elements_each) { return std::max<int64_t>(1, kGrain / std::max<int64_t>(1, elements_each)); }

/// Values and, where they are looked at in pairs, what the quantizer made of them.
struct Pairs {
  const float* x;
  const float* q;  ///< null: x alone

  Pairs operator+(int64_t offset) const { return {x + offset, q == nullptr ? nullptr : q + offset}; }
};

ChannelSum finite_sum(Pairs pairs, int64_t count, int64_t stride) {
  ChannelSum sum;
  for (int64_t i = 0; i < count; ++i) {
    const float value = pairs.x[i * stride];
    if (!std::isfinite(value)) continue;
    sum.min = std::min(sum.min, value);
    sum.max = std::max(sum.max, value);
    sum.absolute += std::fabs(value);
    ++sum.count;
    if (pairs.q == nullptr || !std::isfinite(pairs.q[i * stride])) continue;
    const double error = static_cast<double>(pairs.q[i * stride]) - value;
    sum.energy += static_cast<double>(value) * value;
    sum.error += error * error;
  }
  return sum;
}

bool is_finite(const ChannelSum& sum) { return std::isfinite(sum.absolute + sum.energy + sum.error); }

/// float32 sums of some numbers in each of several lanes.
template <bool kPairs>
struct Lanes {
  float absolute[kLanes] = {}, energy[kLanes] = {}, error[kLanes] = {};

  void add(const float* x, const float* q, float* low, float* high) {
    for (int64_t j = 0; j < kLanes; ++j) {
      low[j] = x[j] < low[j] ? x[j] : low[j];
      high[j] = x[j] > high[j] ? x[j] : high[j];
      absolute[j] += std::fabs(x[j]);
      if constexpr (kPairs) {
        energy[j] += x[j] * x[j];
        error[j] += (q[j] - x[j]) * (q[j] - x[j]);
      }
    }
  }
  void to(ChannelSum& sum) const {
    for (int64_t j = 0; j < kLanes; ++j) {
      sum.absolute += absolute[j];
      sum.energy += energy[j];
      sum.error += error[j];
    }
  }
};

template <bool kPairs>
ChannelSum run_sum(Pairs pairs, int64_t count) {
  ChannelSum sum;
  float low[kLanes], high[kLanes];
  std::fill(low, low + kLanes, sum.min);
  std::fill(high, high + kLanes, sum.max);
  int64_t i = 0;
  while (i + kLanes <= count) {
    Lanes<kPairs> lanes;
    const int64_t last = std::min(count - kLanes, i + (kFloatSum - 1) * kLanes);
    for (; i <= last; i += kLanes) lanes.add(pairs.x + i, kPairs ? pairs.q + i : nullptr, low, high);
    lanes.to(sum);
  }
  sum.min = *std::min_element(low, low + kLanes);
  sum.max = *std::max_element(high, high + kLanes);
  sum.count = i;
  sum.merge(finite_sum(pairs + i, count - i, 1));
  return is_finite(sum) && sum.count == count ? sum : finite_sum(pairs, count, 1);
}

/// kLanes columns of `rows` rows of `width` elements, each into its place of `sums`.
template <bool kPairs>
void column_sums(Pairs pairs, int64_t rows, int64_t width, ChannelSum* sums) {
  float low[kLanes], high[kLanes];
  std::fill(low, low + kLanes, sums[0].min);
  std::fill(high, high + kLanes, sums[0].max);
  for (int64_t first = 0; first < rows; first += kFloatSum) {
    Lanes<kPairs> lanes;
    for (int64_t row = first; row < std::min(rows, first + kFloatSum); ++row) {
      lanes.add(pairs.x + row * width, kPairs ? pairs.q + row * width : nullptr, low, high);
    }
    for (int64_t j = 0; j < kLanes; ++j) {
      sums[j].absolute += lanes.absolute[j];
      sums[j].energy += lanes.energy[j];
      sums[j].error += lanes.error[j];
    }
  }
  for (int64_t j = 0; j < kLanes; ++j) {
    sums[j].min = low[j];
    sums[j].max = high[j];
    sums[j].count = rows;
    if (!is_finite(sums[j])) sums[j] = finite_sum(pairs + j, rows, width);
  }
}

template <bool kPairs>
std::vector<ChannelSum> sums_of(Pairs pairs, const ChannelView& view) {
  std::vector<ChannelSum> sums(static_cast<size_t>(view.channels));
  if (view.outer * view.inner == 0) return sums;
  if (view.inner >= kShortRun) {
    parallel_for(0, view.channels, grain_for(view.outer * view.inner), [&](int64_t begin, int64_t end) {
      for (int64_t o = 0; o < view.outer; ++o) {
        for (int64_t c = begin; c < end; ++c) {
          sums[static_cast<size_t>(c)].merge(run_sum<kPairs>(pairs + (o * view.channels + c) * view.inner, view.inner));
        }
      }
    });
    return sums;
  }
  const int64_t width = view.channels * view.inner;
  std::vector<ChannelSum> columns(static_cast<size_t>(width));
  const int64_t whole = width / kLanes;
  parallel_for(0, whole, grain_for(view.outer * kLanes), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * kLanes; i < end * kLanes; i += kLanes) {
      column_sums<kPairs>(pairs + i, view.outer, width, columns.data() + i);
    }
  });
  for (int64_t i = whole * kLanes; i < width; ++i) {
    columns[static_cast<size_t>(i)] = finite_sum(pairs + i, view.outer, width);
  }
  for (size_t i = 0; i < columns.size(); ++i) sums[i / static_cast<size_t>(view.inner)].merge(columns[i]);
  return sums;
}

/// The mean of |r| over the channels at every place of [outer, inner]; NaN where one of them is NaN or Inf.
std::vector<float> means_over_channels(std::span<const float> r, const ChannelView& view) {
  std::vector<float> means(static_cast<size_t>(view.outer * view.inner));
  const auto channels = static_cast<double>(view.channels);
  if (view.inner == 1) {
    parallel_for(0, view.outer, grain_for(view.channels), [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        const ChannelSum sum = run_sum<false>({r.data() + o * view.channels, nullptr}, view.channels);
        means[static_cast<size_t>(o)] =
            sum.count == view.channels ? static_cast<float>(sum.absolute / channels) : std::nanf("");
      }
    });
    return means;
  }
  constexpr int64_t kPlaces = 1024;
  const int64_t pieces = (view.inner + kPlaces - 1) / kPlaces;
  parallel_for(0, view.outer * pieces, grain_for(view.channels * kPlaces), [&](int64_t begin, int64_t end) {
    double sums[kPlaces];
    float part[kPlaces];
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t o = piece / pieces;
      const int64_t first = piece % pieces * kPlaces;
      const int64_t count = std::min(kPlaces, view.inner - first);
      std::fill(sums, sums + count, 0.0);
      for (int64_t c = 0; c < view.channels; c += kFloatSum) {
        std::fill(part, part + count, 0.0F);
        for (int64_t k = c; k < std::min(view.channels, c + kFloatSum); ++k) {
          const float* from = r.data() + (o * view.channels + k) * view.inner + first;
          for (int64_t i = 0; i < count; ++i) part[i] += std::fabs(from[i]);
        }
        for (int64_t i = 0; i < count; ++i) sums[i] += part[i];
      }
      float* to = means.data() + o * view.inner + first;
      for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(sums[i] / channels);
    }
  });
  return means;
}

}  // namespace

ChannelView ChannelView::of(std::span<const int64_t> shape, int64_t axis) {
  const auto rank = std::ssize(shape);
  ChannelView view;
  if (rank == 0) return view;
  view.outer = element_count(shape.first(static_cast<size_t>(axis)));
  view.channels = shape[static_cast<size_t>(axis)];
  view.inner = element_count(shape.subspan(static_cast<size_t>(axis) + 1));
  if (axis == rank - 1 && (rank == 3 || rank > 4)) view.mean_rows = shape[static_cast<size_t>(rank - 2)];
  return view;
}

void ChannelSum::merge(const ChannelSum& other) {
  min = std::min(min, other.min);
  max = std::max(max, other.max);
  absolute += other.absolute;
  energy += other.energy;
  error += other.error;
  count += other.count;
}

void ChannelCounter::update(std::span<const float> x, std::span<const float> q, const ChannelView& view) {
  if (ragged_ || (!sums_.empty() && std::ssize(sums_) != view.channels)) {
    ragged_ = true;
    return;
  }
  const std::vector<ChannelSum> sums = sums_of<true>({x.data(), q.data()}, view);
  sums_.resize(sums.size());
  for (size_t i = 0; i < sums.size(); ++i) sums_[i].merge(sums[i]);
}

std::vector<ChannelStats> ChannelCounter::stats() const {
  std::vector<ChannelStats> stats;
  if (ragged_) return stats;
  for (const ChannelSum& sum : sums_) {
    stats.push_back(sum.count == 0 ? ChannelStats()
                                   : ChannelStats{sum.min, sum.max, sum.mean(), sum.energy, sum.error});
  }
  return stats;
}

void AbsMeans::update(std::span<const float> r, const ChannelView& view) {
  if (r.empty()) return;
  over_channels_.update(means_over_channels(r, view));
  if (view.mean_rows == 0) {
    const std::vector<ChannelSum> sums = sums_of<false>({r.data(), nullptr}, view);
    if (sums_.empty()) sums_.resize(sums.size());
    if (sums_.size() == sums.size()) {
      for (size_t i = 0; i < sums.size(); ++i) sums_[i].merge(sums[i]);
    }
    return;
  }
  const int64_t size = view.mean_rows * view.channels;
  ChannelView one = view;
  one.outer = view.mean_rows;
  std::vector<float> means;
  for (int64_t at = 0; at < std::ssize(r); at += size) {
    for (const ChannelSum& sum : sums_of<false>({r.data() + at, nullptr}, one)) {
      means.push_back(static_cast<float>(sum.mean()));
    }
  }
  over_rows_.update(means);
}

void AbsMeans::finish() {
  std::vector<float> means;
  for (const ChannelSum& sum : sums_) means.push_back(static_cast<float>(sum.mean()));
  over_rows_.update(means);
  sums_.clear();
}

}  // namespace kaon
