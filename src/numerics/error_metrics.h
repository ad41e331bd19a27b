#pragma once
#include <cstdint>
#include <span>

#include "numerics/float_view.h"
#include "numerics/histogram.h"

namespace kaon {

/// How far a tensor is from its reference, as a stream: sums are kept, so that two halves merged equal the whole
/// (counts and max_abs exactly, the sums but for rounding), and any number of threads gives the same bits.
/// A pair with a NaN or Inf on either side is counted and left out. Where no pair is left every metric is NaN.
struct ErrorMetrics {
  int64_t count = 0;    ///< pairs compared
  int64_t skipped = 0;  ///< pairs left out
  int64_t broken = 0;   ///< those of them whose reference is finite: what is tested made a NaN or Inf
  double max_abs_error = 0;
  double sum_error = 0;           ///< Σ (x - r)
  double sum_squared_error = 0;   ///< Σ (x - r)²
  double sum_relative_error = 0;  ///< Σ |x - r| / (|r| + 1e-12)
  double reference_energy = 0;    ///< Σ r²
  double energy = 0;              ///< Σ x²
  double product = 0;             ///< Σ x·r

  /// Both of one size.
  void update(FloatView x, FloatView reference);
  void merge(const ErrorMetrics& other);

  double mse() const;
  /// 10 log10(Σ r² / Σ (x - r)²); Inf without an error, -Inf with an error on a reference of zeros.
  double sqnr_db() const;
  /// 1 for two zero vectors, 0 for one of them.
  double cosine() const;
  double max_abs() const;
  double mean_error() const;           ///< bias shift: mean of x - r
  double mean_relative_error() const;  ///< mean of |x - r| / (|r| + 1e-12)

  bool operator==(const ErrorMetrics&) const = default;
};

/// The share of the uniform distribution that kl_divergence mixes into both sides.
inline constexpr double kKlSmoothing = 1e-6;

/// Σ p ln(p/q) in nats. The weights (none negative) are normalised to a sum of 1, then both become
/// (1 - smoothing)·p + smoothing/bins: so empty bins give a finite result, and equal sides exactly 0.
/// `smoothing` in [0, 1); with 0 the result is Inf where only q has an empty bin. NaN where a side sums to 0.
double kl_divergence(std::span<const double> p, std::span<const double> q, double smoothing = kKlSmoothing);

/// The same for two histograms of equally many bins(), on the bins of both merged.
double kl_divergence(const Histogram& p, const Histogram& q, double smoothing = kKlSmoothing);

}  // namespace kaon
