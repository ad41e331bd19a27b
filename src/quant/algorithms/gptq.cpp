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
    const auto step = static_cast<double>(factor.lower(i, i));
    costs[static_cast<size_t>(factor.order[static_cast<size_t>(i)])] = 1 / (step * step);
  }
  return costs;
}

/// Columns of a row that share a scale.
struct Stretch {
  int64_t row = 0;
  int64_t begin = 0;
  int64_t end = 0;
  size_t scale = 0;
};

std::vector<Stretch> stretches_of(const GroupRows& rows, const std::vector<int64_t>& scales) {
  const LayerProduct& product = rows.weight.product;
  std::vector<Stretch> found;
  for (int64_t row = rows.first_row(); row < rows.first_row() + rows.target.rows; ++row) {
    for (int64_t col = 0; col < product.cols; ++col) {
      const auto scale = static_cast<size_t>(scales[static_cast<size_t>(product.offset(row, col))]);
      if (col == 0 || found.back().scale != scale) found.push_back({row, col, col, scale});
      found.back().end = col + 1;
    }
  }
  return found;
}

/// Rounds with several ranges and leaves each row of the group with those, and the codes, that it loses least with.
void round_with_ranges(GridWeight& weight, const GroupRows& rows, const GptqFactor& factor,
                       const std::vector<int64_t>& scales, FloatMatrix& codes) {
  const std::vector<Stretch> stretches = stretches_of(rows, scales);
  const int64_t first = rows.first_row(), count = rows.target.rows;
  QuantParams& params = weight.quantizer->params;
  const auto grids_now = [&] {
    std::vector<ScaleZero> grids;
    for (const Stretch& stretch : stretches) {
      const int32_t zero = params.zero_point.empty() ? 0 : params.zero_point[stretch.scale];
      grids.push_back({params.scale[stretch.scale], zero});
    }
    return grids;
  };
  std::vector<std::vector<ScaleZero>> tries{grids_now()};
  narrow_ranges(weight, rows.group, scales, costs_of(factor));
  tries.push_back(grids_now());
  // A range for a whole row is worth more of them than one for some columns.
  const bool whole_rows = std::ssize(stretches) == count;
  const int64_t parts = whole_rows ? 8 : 2;
  const double step = whole_rows ? 0.06 : 0.1;
  for (int64_t i = 1; i <= parts; ++i) {
    const auto part = static_cast<float>(1 - step * static_cast<double>(i));
    std::vector<ScaleZero>& grids = tries.emplace_back();
    for (const Stretch& stretch : stretches) {
      const auto [min, max] = std::ranges::minmax(
          weight.exact.row(stretch.row)
              .subspan(static_cast<size_t>(stretch.begin), static_cast<size_t>(stretch.end - stretch.begin)));
      const TensorSpec& spec = weight.quantizer->spec;
      grids.push_back(choose_scale({min * part, max * part}, format(spec.format),
                                   spec.symmetric ? Symmetry::Symmetric : Symmetry::Asymmetric, spec.scale_type));
    }
  }
  const auto set = [&](const Stretch& stretch, ScaleZero grid) {
    params.scale[stretch.scale] = grid.scale;
    if (!params.zero_point.empty()) params.zero_point[stretch.scale] = grid.zero_point;
    for (int64_t col = stretch.begin; col < stretch.end; ++col) {
      weight.scale(stretch.row, col) = grid.scale;
      weight.zero(stretch.row, col) = static_cast<float>(grid.zero_point);
    }
  };
  std::vector<double> least(static_cast<size_t>(count), INFINITY);
  std::vector<size_t> best(static_cast<size_t>(count));
  FloatMatrix best_codes(count, codes.cols);
  for (size_t attempt = 0; attempt < tries.size(); ++attempt) {
    for (size_t i = 0; i < stretches.size(); ++i) set(stretches[i], tries[attempt][i]);
    const std::vector<double> errors = round_gptq(rows, factor, codes);
    for (int64_t r = 0; r < count; ++r) {
      const auto at = static_cast<size_t>(r);
      if (errors[at] >= least[at]) continue;
      least[at] = errors[at];
      best[at] = attempt;
      std::ranges::copy(codes.row(first + r), best_codes.row(r).begin());
    }
  }
  for (size_t i = 0; i < stretches.size(); ++i) {
    set(stretches[i], tries[best[static_cast<size_t>(stretches[i].row - first)]][i]);
  }
  for (int64_t r = 0; r < count; ++r) std::ranges::copy(best_codes.row(r), codes.row(first + r).begin());
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
    if (own.empty()) {
      round_gptq(rows, factor, codes);
    } else {
      round_with_ranges(weight, rows, factor, own, codes);
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
                                       .help = "tries several ranges for each row, unless an algorithm before it "
                                               "chose them",
                                       .flag = true},
                                      sequential_option()},
                          .run = round_weights});
}

}  // namespace kaon
