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

}  // namespace kaon
