#pragma once
#include <span>
#include <vector>

#include "numerics/histogram.h"
#include "numerics/scale.h"
#include "numerics/tensor_spec.h"

namespace kaon {

/// The squared error that quantization does to the values of a histogram, which are taken to lie evenly within their
/// bins. Rounding is to the nearest.
class ErrorModel {
 public:
  /// The part of an error that comes from clipping counts `clip_penalty` times.
  ErrorModel(const Histogram& histogram, const TensorSpec& spec, double clip_penalty = 1);

  /// Σ over all values.
  double operator()(ScaleZero params) const;
  /// With the parameters that choose_scale() gives for `range`.
  double operator()(Range range) const;

  /// For each of `values` the one it is quantized to, in units of the scale.
  std::vector<double> quantized(std::span<const double> values, ScaleZero params) const;

  const TensorSpec& spec() const { return spec_; }

 private:
  struct Weighted {
    double x;
    double weight;
  };

  /// Calls body with what finds the level next to a number in units of the scale.
  template <class Body>
  auto with_levels(int32_t zero_point, const Body& body) const;
  template <class Levels>
  double sum(const Levels& levels, double scale) const;

  TensorSpec spec_;
  const Format& format_;
  double clip_penalty_;
  std::vector<Weighted> edges_;   // where the values per unit change, and by how much they fall
  std::vector<Weighted> points_;  // of bins whose values are all equal: how many they are
  // Float formats: the values >= 0 at scale 1 by code, and the integral of the squared error up to there.
  std::vector<double> levels_;
  std::vector<double> integral_;
};

/// Rounding only gets better on the way to smaller scales, so a total this many times above the best is due to
/// clipping, which only gets worse.
inline constexpr double kHopeless = 4;

/// The range with the least error. `all` is what was seen, widened to hold 0; the result lies within.
Range least_error_range(const ErrorModel& error, Range all);

/// The scale 2^n, and where it is asymmetric the zero point, with the least error.
ScaleZero least_error_power_of_two(const ErrorModel& error, Range all);

}  // namespace kaon
