#pragma once
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "numerics/float_blocks.h"

namespace kaon {

/// Counts in equal bins whose range follows the data; no count is ever lost or moved over a bin's edge.
///
/// The edges are the multiples of a width 2^e, and e is the smallest for which all finite values so far fit into
/// `bins` bins. A wider range doubles the width, which joins bins in pairs and leaves every other edge in place. So
/// the histogram depends on the set of values alone: in any order, cut and merged in any way, on any number of
/// threads it is the same. Between bins/2 and bins of them are in use, unless the values are so close to each other
/// that bins are as narrow as float32 resolves (1 bin for a constant).
///
/// Bin k >= 0 holds [k·w, (k+1)·w) and bin k < 0 holds (k·w, (k+1)·w]: zero and -0 lie in bin 0, and x and -x in
/// mirrored bins. NaN and Inf are counted in non_finite() only.
class Histogram {
 public:
  /// 16 <= bins <= 65536.
  explicit Histogram(int64_t bins = 2048);

  void update(FloatView in);
  /// `other` must have the same bins().
  void merge(const Histogram& other);

  int64_t bins() const { return bins_; }
  int64_t count() const { return count_; }  ///< of finite values
  const NonFinite& non_finite() const { return non_finite_; }
  float min() const { return min_; }  ///< exact; of an empty histogram min = Inf, max = -Inf
  float max() const { return max_; }
  float absmax() const;  ///< 0 when empty

  double width() const;
  /// Of the bins in use, from the one that holds min() to the one that holds max().
  std::span<const int64_t> counts() const { return counts_; }
  int64_t first_bin() const { return first_; }  ///< the k of counts()[0]
  double edge(int64_t i) const;                 ///< the lower edge of counts()[i]; i = counts().size(): the upper end
  std::vector<double> edges() const;            ///< counts().size() + 1 of them

  /// The value below which a share `q` of the values lies, linear within a bin: 0 gives min(), 1 gives max().
  /// 0 when empty.
  double quantile(double q) const;

  struct Bins {
    int64_t first = 0;
    std::vector<int64_t> counts;
  };
  /// The histogram of |x| at the same width: counts[i] is that of [(first + i)·w, (first + i + 1)·w).
  Bins absolute() const;
  /// quantile() of |x|; 1 gives absmax().
  double absolute_quantile(double q) const;

  bool operator==(const Histogram&) const = default;

 private:
  class Filler;

  void cover(float min, float max);

  int64_t bins_;
  int64_t count_ = 0;
  NonFinite non_finite_;
  float min_ = std::numeric_limits<float>::infinity();
  float max_ = -std::numeric_limits<float>::infinity();
  int exponent_;
  int64_t first_ = 0;
  std::vector<int64_t> counts_;
};

}  // namespace kaon
