#pragma once
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "numerics/float_blocks.h"

namespace kaon {

/// Count, range and the first four moments of a stream of numbers. NaN and Inf are counted in `non_finite` and left out
/// of everything else. Two halves merged equal the whole: counts, min and max exactly, the moments but for rounding.
/// The same updates give the same bits on any number of threads.
struct Moments {
  int64_t count = 0;  ///< of finite values
  NonFinite non_finite;
  float min = std::numeric_limits<float>::infinity();  ///< of an empty stream min = Inf, max = -Inf
  float max = -std::numeric_limits<float>::infinity();
  double mean = 0;
  double m2 = 0;  ///< Σ (x - mean)^2, and so on
  double m3 = 0;
  double m4 = 0;

  void update(FloatView in);
  void merge(const Moments& other);

  float absmax() const;     ///< 0 when empty
  double variance() const;  ///< of the population (Σ / count); 0 when empty
  double stddev() const;
  double skewness() const;  ///< 0 when the variance is 0
  double kurtosis() const;  ///< 3 for a normal distribution, never below 1; 0 when the variance is 0

  bool operator==(const Moments&) const = default;
};

/// One Moments for each index along an axis.
class ChannelMoments {
 public:
  /// `axis` from -rank to rank - 1. Every update must have the same extent along its axis; the rest may differ.
  void update(FloatView in, std::span<const int64_t> shape, int64_t axis);
  void merge(const ChannelMoments& other);

  const std::vector<Moments>& channels() const { return channels_; }
  /// All channels merged.
  Moments total() const;

 private:
  void expect_channels(int64_t count);

  std::vector<Moments> channels_;
};

}  // namespace kaon
