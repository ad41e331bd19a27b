#pragma once
#include <limits>
#include <span>
#include <vector>

#include "debug/debug_report.h"

namespace kaon {

/// A value as [outer, channels, inner]: `channels` columns, and everything else as rows.
struct ChannelView {
  int64_t outer = 1;
  int64_t channels = 1;
  int64_t inner = 1;
  /// Rows that one mean over rows goes over: those of one matrix, where the value is a stack of matrices [rows,
  /// channels]; 0: all of them, over the whole data.
  int64_t mean_rows = 0;

  /// `axis`: where the channels lie.
  static ChannelView of(std::span<const int64_t> shape, int64_t axis);
};

/// Sums over one channel; NaN and Inf are left out.
struct ChannelSum {
  float min = std::numeric_limits<float>::infinity();
  float max = -std::numeric_limits<float>::infinity();
  double absolute = 0;
  double energy = 0;  ///< Σ x² …
  double error = 0;   ///< … and Σ (q - x)²
  int64_t count = 0;

  void merge(const ChannelSum& other);
  double mean() const { return count == 0 ? 0 : absolute / static_cast<double>(count); }
};

/// Range, size and error of every channel, as a stream.
class ChannelCounter {
 public:
  void update(std::span<const float> x, std::span<const float> q, const ChannelView& view);
  /// Empty where the number of channels changed from one update to the next.
  std::vector<ChannelStats> stats() const;

 private:
  std::vector<ChannelSum> sums_;
  bool ragged_ = false;
};

/// The means of |r| over the rows (one number a channel) and over the channels (one number a row), as histograms.
class AbsMeans {
 public:
  void update(std::span<const float> r, const ChannelView& view);
  /// Adds the means over the rows that go over the whole data.
  void finish();

  const Histogram& over_rows() const { return over_rows_; }
  const Histogram& over_channels() const { return over_channels_; }

 private:
  Histogram over_rows_{QuantizerDebug::kBins};
  Histogram over_channels_{QuantizerDebug::kBins};
  std::vector<ChannelSum> sums_;  ///< of the channels, where their means go over the whole data
};

}  // namespace kaon
