// Rounding with error feedback: Frantar et al. 2022, arXiv:2210.17323.
#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

#include "quant/round_all.h"
#include "quant/weight_ranges.h"

namespace kaon {
namespace {

/// Whether an algorithm before this one chose the ranges.
bool has_ranges(const QuantizedModel& quantized) {
  for (const AlgorithmConfig& algorithm : quantized.config.algorithms) {
    if (algorithm.name == "gptq") return false;
    if (algorithms().get(algorithm.name).decides == Decides::Ranges) return true;
  }
  return false;
}

/// The error that a step of one in a column leaves when those after it have taken back what they can.
std::vector<double> costs_of(const GptqFactor& factor) {
  std::vector<double> costs(factor.order.size());
  for (int64_t i = 0; i < std::ssize(factor.order); ++i) {
    costs[static_cast<size_t>(factor.order[static_cast<size_t>(i)])] = 1 / (factor.upper(i, i) * factor.upper(i, i));
  }
  return costs;
}

/// Whether each row of the weight has one scale.
bool has_whole_rows(const GridWeight& weight, const std::vector<int64_t>& scales) {
  for (int64_t row = 0; row < weight.exact.rows; ++row) {
    const auto scale_at = [&](int64_t col) { return scales[static_cast<size_t>(weight.product.offset(row, col))]; };
    if (scale_at(0) != scale_at(weight.exact.cols - 1)) return false;
  }
  return true;
}

/// Rounds with several ranges and leaves each row of the group with the one, and the codes, that it loses least with.
void round_with_ranges(GridWeight& weight, const GroupRows& rows, const GptqFactor& factor,
                       const std::vector<int64_t>& scales, FloatMatrix& codes) {
  constexpr double kStep = 0.06;
  constexpr int64_t kTries = 9;
  QuantParams& params = weight.quantizer->params;
  const QuantParams widest = params;
  const int64_t first = rows.first_row(), count = rows.target.rows;
  const auto tile_of = [&](int64_t row) {
    return static_cast<size_t>(scales[static_cast<size_t>(weight.product.offset(row, 0))]);
  };
  std::vector<double> least(static_cast<size_t>(count), INFINITY);
  std::vector<ScaleZero> best(static_cast<size_t>(count));
  FloatMatrix best_codes(count, codes.cols);
  const auto set = [&](int64_t row, ScaleZero grid) {
    params.scale[tile_of(row)] = grid.scale;
    if (!params.zero_point.empty()) params.zero_point[tile_of(row)] = grid.zero_point;
    std::ranges::fill(weight.scale.row(row), grid.scale);
    std::ranges::fill(weight.zero.row(row), static_cast<float>(grid.zero_point));
  };
  for (int64_t attempt = 0; attempt < kTries; ++attempt) {
    std::vector<ScaleZero> grids(static_cast<size_t>(count));
    for (int64_t r = 0; r < count; ++r) {
      const size_t tile = tile_of(first + r);
      ScaleZero& grid = grids[static_cast<size_t>(r)];
      grid = {widest.scale[tile], widest.zero_point.empty() ? 0 : widest.zero_point[tile]};
      if (attempt > 0) {
        const auto [min, max] = std::ranges::minmax(weight.exact.row(first + r));
        const auto part = static_cast<float>(1 - kStep * static_cast<double>(attempt));
        grid = choose_scale({min * part, max * part}, format(weight.quantizer->spec.format),
                            weight.quantizer->spec.symmetric ? Symmetry::Symmetric : Symmetry::Asymmetric,
                            weight.quantizer->spec.scale_type);
      }
      set(first + r, grid);
    }
    const std::vector<double> errors = round_gptq(rows, factor, codes);
    for (size_t r = 0; r < errors.size(); ++r) {
      if (errors[r] >= least[r]) continue;
      least[r] = errors[r];
      best[r] = grids[r];
      std::ranges::copy(codes.row(first + static_cast<int64_t>(r)), best_codes.row(static_cast<int64_t>(r)).begin());
    }
  }
  for (int64_t r = 0; r < count; ++r) {
    set(first + r, best[static_cast<size_t>(r)]);
    std::ranges::copy(best_codes.row(r), codes.row(first + r).begin());
  }
}

void round_weights(const AlgorithmInput& input) {
  const GptqOptions options{input.option("damping"), input.flag("act_order")};
  const bool clip = input.flag("clip") && !has_ranges(input.quantized);
  std::map<std::string, std::vector<int64_t>> scales;  // by name
  DampingNotes damped;
  std::mutex mutex;
  const auto scales_of = [&](const GridWeight& weight) -> const std::vector<int64_t>& {
    const std::lock_guard lock(mutex);
    const auto [known, added] = scales.try_emplace(weight.name());
    if (added && clip && !weight.is_float) known->second = scales_along_rows(weight);
    return known->second;
  };
  round_all(input, [&](GridWeight& weight, const GroupRows& rows, FloatMatrix& codes) {
    const GptqFactor factor = factor_for_gptq(rows.gram, options, weight.name());
    const std::vector<int64_t>& own = scales_of(weight);
    if (!own.empty() && has_whole_rows(weight, own)) {
      round_with_ranges(weight, rows, factor, own, codes);
    } else {
      if (!own.empty()) narrow_ranges(weight, rows.group, own, costs_of(factor));
      round_gptq(rows, factor, codes);
    }
    damped.add(rows, factor);
  });
  damped.say(input);
}

}  // namespace

void register_gptq(Registry<Algorithm>& algorithms) {
  algorithms.add("gptq", {.summary = "rounds weights column after column; what one loses, the next take back",
                          .decides = Decides::Codes,
                          .options = {{.name = "damping",
                                       .value = 0.01,
                                       .min = 0,
                                       .max = 10,
                                       .help = "what is added to the diagonal, relative to its mean"},
                                      {.name = "act_order",
                                       .value = 1,
                                       .min = 0,
                                       .max = 1,
                                       .help = "columns with the largest inputs first",
                                       .flag = true},
                                      {.name = "clip",
                                       .value = 1,
                                       .min = 0,
                                       .max = 1,
                                       .help = "first narrows ranges where that costs less, unless an algorithm before "
                                               "it chose them",
                                       .flag = true},
                                      sequential_option()},
                          .run = round_weights});
}

}  // namespace kaon
