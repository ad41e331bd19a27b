#pragma once
#include <optional>
#include <span>
#include <vector>

#include "debug/debug_report.h"
#include "numerics/row_plan.h"

namespace kaon {

/// What a quantizer can represent, tile by tile.
class Limits {
 public:
  /// Where the parameters follow from the data, from those of `values`, a tensor of `shape`.
  Limits(const Quantizer& quantizer, FloatView values, std::span<const int64_t> shape);

  /// Adds elements [begin, end) of the tensor, all but round_squared_error. `q` is what the quantizer made of `x`.
  /// Pairs with a NaN or Inf are left out.
  void count(std::span<const float> x, std::span<const float> q, int64_t begin, int64_t end, ClipCounts& counts) const;

 private:
  RowPlan plan_;
  std::vector<Range> tiles_;  ///< beyond these an element is clipped
};

/// The range of a whole value under fixed parameters, where all tiles have the same.
std::optional<Range> representable_range(const Quantizer& quantizer);
/// Distance of the codes of a static integer quantizer with one scale; else 0.
double code_step(const Quantizer& quantizer);

/// The parameters of a static quantizer for a value of `shape`. Per-channel activations keep theirs without the shape.
QuantParams params_for(const Quantizer& quantizer, std::span<const int64_t> shape);

}  // namespace kaon
