#pragma once
#include <algorithm>

#include "numerics/scale.h"
#include "numerics/tensor_spec.h"

namespace kaon {

/// Smallest and largest finite value of a stream.
class SeenRange {
 public:
  void update(FloatView values);
  bool empty() const { return empty_; }
  Range range() const { return range_; }  ///< {0, 0} when empty

 private:
  bool empty_ = true;
  Range range_;
};

/// The range widened to hold 0, as asymmetric quantization needs it.
inline Range with_zero(Range range) { return {std::min(range.min, 0.0F), std::max(range.max, 0.0F)}; }

/// What is in both; both hold 0.
inline Range intersection(Range a, Range b) { return {std::max(a.min, b.min), std::min(a.max, b.max)}; }

inline Symmetry symmetry_of(const TensorSpec& spec) {
  return spec.symmetric ? Symmetry::Symmetric : Symmetry::Asymmetric;
}

/// The values that `spec` can represent with these parameters, bounded to float32's range.
Range representable(const TensorSpec& spec, ScaleZero params);

/// Parameters with the given scale, its zero point placed so that `range` is cut at both ends alike.
ScaleZero with_scale(const TensorSpec& spec, float scale, Range range);

}  // namespace kaon
