#pragma once
#include <optional>

#include "quant/weight_rounding.h"

namespace kaon {

/// What the rows of every group are to become, and what they multiply.
struct RangeProblem {
  const GridWeight& weight;
  std::vector<Matrix> targets;      ///< [rows, cols] of every group
  const std::vector<Matrix>& gram;  ///< [cols, cols] of every group
};

struct RangeOptions {
  double least = 0.2;  ///< smallest fraction of the range of the weights
  int64_t steps = 64;  ///< from there to 1
};

/// Parameters of the weight's quantizer with the least Σ (w' - w)ᵀ·G·(w' - w) of weights rounded to the nearest; those
/// it has are among the candidates. Nothing where elements of several rows, but not all, share a scale.
std::optional<QuantParams> search_ranges(const RangeProblem& problem, const RangeOptions& options);

/// The scale of every element, in the weight's order; empty unless each scale serves one stretch of one row.
std::vector<int64_t> scales_along_rows(const GridWeight& weight);

/// For the rows of one group, ranges with the least Σ cost_c (w'_c - w_c)² of weights rounded to the nearest: what a
/// column costs by itself. Sets the quantizer's parameters and the weight's grid.
void narrow_ranges(GridWeight& weight, int64_t group, const std::vector<int64_t>& scales, std::span<const double> cost);

/// The options `least` and `steps`.
std::vector<Option> range_options();

/// Gives the quantizer of `weight` what search_ranges() finds for its float values.
void apply_ranges(const GridWeight& weight, const InputStatistics& statistics, const RangeOptions& options,
                  const AlgorithmInput& input);

/// apply_ranges() for every weight on a grid, with the options of range_options(), on what layers read in the float
/// model.
void search_all_ranges(const AlgorithmInput& input);

}  // namespace kaon
