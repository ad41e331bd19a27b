#include "quant/weight_ranges.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/parallel.h"
#include "engine/plan/simd.h"

namespace kaon {
namespace {

/// Candidates of scales and zero points.
class Candidates {
 public:
  Candidates(const Quantizer& quantizer, std::span<const float> values, const Shape& shape, const RangeOptions& options)
      : quantizer_(quantizer), options_(options) {
    ranges_ = tile_ranges(values, tiling_of(quantizer.spec, shape));
  }

  int64_t count() const { return options_.steps; }
  /// Candidate `index` of a tile: the larger, the wider; -1: what the quantizer has.
  ScaleZero at(int64_t tile, int64_t index) const {
    const auto t = static_cast<size_t>(tile);
    const QuantParams& now = quantizer_.params;
    if (index < 0) return {now.scale[t], now.zero_point.empty() ? 0 : now.zero_point[t]};
    const double share = static_cast<double>(index + 1) / static_cast<double>(options_.steps);
    const auto fraction = static_cast<float>(options_.least + (1 - options_.least) * share);
    return choose_scale({ranges_[t].min * fraction, ranges_[t].max * fraction}, format(quantizer_.spec.format),
                        quantizer_.spec.symmetric ? Symmetry::Symmetric : Symmetry::Asymmetric,
                        quantizer_.spec.scale_type);
  }

  void set(QuantParams& params, int64_t tile, ScaleZero chosen) const {
    params.scale[static_cast<size_t>(tile)] = chosen.scale;
    if (!params.zero_point.empty()) params.zero_point[static_cast<size_t>(tile)] = chosen.zero_point;
  }

 private:
  const Quantizer& quantizer_;
  RangeOptions options_;
  std::vector<Range> ranges_;
};

/// Whole rows share a scale: all of them are tried at once.
class WholeRows {
 public:
  WholeRows(const RangeProblem& problem, const Candidates& candidates, std::vector<int64_t> tile_of_row)
      : problem_(problem), candidates_(candidates), tile_of_row_(std::move(tile_of_row)) {}

  QuantParams search() {
    const QuantParams& now = problem_.weight.quantizer->params;
    best_.assign(now.scale.size(), -1);
    least_ = errors(best_);
    constexpr int64_t kCoarse = 4;
    for (int64_t index = kCoarse - 1; index < candidates_.count(); index += kCoarse) {
      try_all(std::vector<int64_t>(best_.size(), index));
    }
    const std::vector<int64_t> middle = best_;
    for (int64_t by = 1 - kCoarse; by < kCoarse; ++by) {
      std::vector<int64_t> trial = middle;
      for (int64_t& index : trial) {
        if (index >= 0) index = std::clamp<int64_t>(index + by, 0, candidates_.count() - 1);
      }
      if (by != 0) try_all(trial);
    }
    return params_of(best_);
  }

 private:
  QuantParams params_of(const std::vector<int64_t>& choice) const {
    QuantParams params = problem_.weight.quantizer->params;
    for (int64_t tile = 0; tile < std::ssize(choice); ++tile) {
      candidates_.set(params, tile, candidates_.at(tile, choice[static_cast<size_t>(tile)]));
    }
    return params;
  }

  std::vector<double> errors(const std::vector<int64_t>& choice) const {
    GridWeight trial = problem_.weight;
    trial.set_params(params_of(choice));
    FloatMatrix codes(trial.exact.rows, trial.exact.cols);
    std::vector<double> of_tiles(choice.size());
    for (int64_t group = 0; group < trial.product.groups; ++group) {
      const GroupRows rows{trial, group, problem_.targets[static_cast<size_t>(group)],
                           problem_.gram[static_cast<size_t>(group)]};
      for (int64_t r = 0; r < trial.product.rows; ++r) {
        const int64_t row = rows.first_row() + r;
        for (int64_t c = 0; c < codes.cols; ++c) codes(row, c) = trial.nearest(rows.target(r, c), row, c);
      }
      const std::vector<double> of_rows = row_errors(rows, codes);
      for (size_t r = 0; r < of_rows.size(); ++r) {
        const auto row = static_cast<size_t>(rows.first_row()) + r;
        of_tiles[static_cast<size_t>(tile_of_row_[row])] += of_rows[r];
      }
    }
    return of_tiles;
  }

  void try_all(const std::vector<int64_t>& choice) {
    const std::vector<double> found = errors(choice);
    for (size_t tile = 0; tile < found.size(); ++tile) {
      if (found[tile] >= least_[tile]) continue;
      least_[tile] = found[tile];
      best_[tile] = choice[tile];
    }
  }

  const RangeProblem& problem_;
  const Candidates& candidates_;
  std::vector<int64_t> tile_of_row_;
  std::vector<int64_t> best_;
  std::vector<double> least_;
};

/// A row has several scales, each its own: one after the other is searched, the others as they are.
class PartsOfRows {
 public:
  PartsOfRows(const RangeProblem& problem, const Candidates& candidates, const std::vector<int64_t>& tiles)
      : problem_(problem), candidates_(candidates), tiles_(tiles), params_(problem.weight.quantizer->params) {}

  QuantParams search() {
    const GridWeight& weight = problem_.weight;
    parallel_for(0, weight.exact.rows, 1, [&](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) search_row(row);
    });
    return std::move(params_);
  }

 private:
  /// What the elements of a tile lose with these parameters.
  std::vector<double> lost(int64_t row, std::span<const int64_t> cols, ScaleZero chosen) const {
    const GridWeight& weight = problem_.weight;
    const auto scale = static_cast<double>(chosen.scale);
    const auto zero = static_cast<double>(chosen.zero_point);
    std::vector<double> result;
    for (const int64_t col : cols) {
      const double target = target_row(row)[static_cast<size_t>(col)];
      result.push_back(static_cast<double>(weight.on_grid(target / scale, zero)) * scale - target);
    }
    return result;
  }

  std::span<const double> target_row(int64_t row) const {
    const int64_t rows = problem_.weight.product.rows;
    return problem_.targets[static_cast<size_t>(row / rows)].row(row % rows);
  }

  void search_row(int64_t row) {
    constexpr int kSweeps = 2;
    const LayerProduct& product = problem_.weight.product;
    const Matrix& gram = problem_.gram[static_cast<size_t>(row / product.rows)];
    std::map<int64_t, std::vector<int64_t>> cols_of;
    for (int64_t col = 0; col < product.cols; ++col) {
      cols_of[tiles_[static_cast<size_t>(product.offset(row, col))]].push_back(col);
    }
    std::vector<double> pull(static_cast<size_t>(product.cols));
    std::map<int64_t, std::vector<double>> now;
    for (const auto& [tile, cols] : cols_of) {
      now[tile] = lost(row, cols, candidates_.at(tile, -1));
      move(gram, cols, now[tile], pull);
    }
    for (int sweep = 0; sweep < kSweeps; ++sweep) {
      for (const auto& [tile, cols] : cols_of) {
        std::vector<double> best;
        ScaleZero chosen;
        double least = 0;
        for (int64_t index = 0; index < candidates_.count(); ++index) {
          const ScaleZero candidate = candidates_.at(tile, index);
          std::vector<double> by = lost(row, cols, candidate);
          std::ranges::transform(by, now[tile], by.begin(), std::minus<>());
          const double change = gain(gram, cols, by, pull);
          if (change >= least) continue;
          least = change;
          best = std::move(by);
          chosen = candidate;
        }
        if (best.empty()) continue;
        move(gram, cols, best, pull);
        std::ranges::transform(best, now[tile], now[tile].begin(), std::plus<>());
        candidates_.set(params_, tile, chosen);
      }
    }
  }

  static void move(const Matrix& gram, std::span<const int64_t> cols, std::span<const double> by,
                   std::vector<double>& pull) {
    for (size_t i = 0; i < cols.size(); ++i) {
      const std::span<const double> line = gram.row(cols[i]);
      for (size_t k = 0; k < pull.size(); ++k) pull[k] += by[i] * line[k];
    }
  }

  static double gain(const Matrix& gram, std::span<const int64_t> cols, std::span<const double> by,
                     const std::vector<double>& pull) {
    double sum = 0;
    for (size_t i = 0; i < cols.size(); ++i) {
      double part = 2 * pull[static_cast<size_t>(cols[i])];
      for (size_t k = 0; k < cols.size(); ++k) part += gram(cols[i], cols[k]) * by[k];
      sum += by[i] * part;
    }
    return sum;
  }

  const RangeProblem& problem_;
  const Candidates& candidates_;
  const std::vector<int64_t>& tiles_;
  QuantParams params_;
};

}  // namespace

std::optional<QuantParams> search_ranges(const RangeProblem& problem, const RangeOptions& options) {
  const GridWeight& weight = problem.weight;
  const LayerProduct& product = weight.product;
  const Shape& shape = weight.layers.front()->weight_shape;
  const std::vector<int64_t> tiles = tiles_of(tiling_of(weight.quantizer->spec, shape));
  std::vector<float> values(weight.exact.data.size());
  std::vector<int64_t> tile_of_row;
  std::vector<int64_t> row_of_tile(weight.quantizer->params.scale.size(), -1);
  bool whole_rows = true;
  bool own_rows = true;
  for (int64_t row = 0; row < weight.exact.rows; ++row) {
    tile_of_row.push_back(tiles[static_cast<size_t>(product.offset(row, 0))]);
    for (int64_t col = 0; col < weight.exact.cols; ++col) {
      const auto at = static_cast<size_t>(product.offset(row, col));
      values[at] = weight.exact(row, col);
      whole_rows &= tiles[at] == tile_of_row.back();
      int64_t& owner = row_of_tile[static_cast<size_t>(tiles[at])];
      own_rows &= owner < 0 || owner == row;
      owner = row;
    }
  }
  const Candidates candidates(*weight.quantizer, values, shape, options);
  if (whole_rows) return WholeRows(problem, candidates, std::move(tile_of_row)).search();
  if (own_rows) return PartsOfRows(problem, candidates, tiles).search();
  return std::nullopt;
}

std::vector<int64_t> scales_along_rows(const GridWeight& weight) {
  std::vector<int64_t> tiles = tiles_of(tiling_of(weight.quantizer->spec, weight.layers.front()->weight_shape));
  std::vector<bool> begun(weight.quantizer->params.scale.size());
  for (int64_t row = 0; row < weight.exact.rows; ++row) {
    int64_t last = -1;
    for (int64_t col = 0; col < weight.exact.cols; ++col) {
      const int64_t tile = tiles[static_cast<size_t>(weight.product.offset(row, col))];
      if (tile == last) continue;
      if (begun[static_cast<size_t>(tile)]) return {};
      begun[static_cast<size_t>(tile)] = true;
      last = tile;
    }
  }
  return tiles;
}

namespace {

/// What rounding to integers of `low` … `high`, times `scale`, costs.
KAON_SIMD float cost_of_grid(const float* values, const float* costs, int64_t count, float scale, float low,
                             float high) {
  constexpr int64_t kLanes = 16;
  // Added and taken off again, it leaves a small number rounded, half to even.
  constexpr float kRounds = 0x1.8p23F;
  float sums[kLanes] = {};
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t used = std::min(kLanes, count - i);
    float value[kLanes] = {}, cost[kLanes] = {};
    std::copy_n(values + i, used, value);
    std::copy_n(costs + i, used, cost);
    for (int64_t l = 0; l < kLanes; ++l) {
      const float code = std::min(std::max(value[l] / scale, low), high) + kRounds - kRounds;
      const float error = code * scale - value[l];
      sums[l] += cost[l] * error * error;
    }
  }
  return std::accumulate(std::begin(sums), std::end(sums), 0.0F);
}

}  // namespace

void narrow_ranges(GridWeight& weight, int64_t group, const std::vector<int64_t>& scales,
                   std::span<const double> cost) {
  constexpr RangeOptions kOptions{0.4, 24};
  const TensorSpec& spec = weight.quantizer->spec;
  const LayerProduct& product = weight.product;
  QuantParams& params = weight.quantizer->params;
  parallel_for(group * product.rows, (group + 1) * product.rows, 4, [&](int64_t first, int64_t last) {
    std::vector<float> values, costs;
    for (int64_t row = first; row < last; ++row) {
      for (int64_t begin = 0; begin < product.cols;) {
        const int64_t tile = scales[static_cast<size_t>(product.offset(row, begin))];
        values.clear();
        costs.clear();
        int64_t end = begin;
        for (; end < product.cols && scales[static_cast<size_t>(product.offset(row, end))] == tile; ++end) {
          values.push_back(weight.exact(row, end));
          costs.push_back(static_cast<float>(cost[static_cast<size_t>(end)]));
        }
        const auto lost = [&](ScaleZero grid) {
          const auto zero = static_cast<float>(grid.zero_point);
          const float low = static_cast<float>(weight.lowest) - zero, high = static_cast<float>(weight.highest) - zero;
          return cost_of_grid(values.data(), costs.data(), std::ssize(values), grid.scale, low, high);
        };
        const auto [min, max] = std::ranges::minmax(values);
        const auto at = static_cast<size_t>(tile);
        ScaleZero best{params.scale[at], params.zero_point.empty() ? 0 : params.zero_point[at]};
        float least = lost(best);
        for (int64_t step = 0; step < kOptions.steps; ++step) {
          const double share = static_cast<double>(step) / static_cast<double>(kOptions.steps);
          const auto fraction = static_cast<float>(kOptions.least + (1 - kOptions.least) * share);
          const ScaleZero grid =
              choose_scale({min * fraction, max * fraction}, format(spec.format),
                           spec.symmetric ? Symmetry::Symmetric : Symmetry::Asymmetric, spec.scale_type);
          const float error = lost(grid);
          if (error >= least) continue;
          least = error;
          best = grid;
        }
        params.scale[at] = best.scale;
        if (!params.zero_point.empty()) params.zero_point[at] = best.zero_point;
        for (int64_t col = begin; col < end; ++col) {
          weight.scale(row, col) = best.scale;
          weight.zero(row, col) = static_cast<float>(best.zero_point);
        }
        begin = end;
      }
    }
  });
}

std::vector<Option> range_options() {
  return {
      {.name = "least",
       .value = 0.2,
       .min = 0.01,
       .max = 0.99,
       .help = "smallest range that is tried, as a fraction of the largest weight"},
      {.name = "steps", .value = 64, .min = 4, .max = 10000, .help = "ranges from there to all of it", .whole = true}};
}

void apply_ranges(const GridWeight& weight, const InputStatistics& statistics, const RangeOptions& options,
                  const AlgorithmInput& input) {
  RangeProblem problem{weight, {}, statistics.gram};
  for (int64_t group = 0; group < weight.product.groups; ++group) problem.targets.push_back(exact_rows(weight, group));
  const std::optional<QuantParams> found = search_ranges(problem, options);
  if (!found) return input.note("{}: elements of several outputs share a scale; left alone", weight.name());
  QuantParams& params = weight.quantizer->params;
  if (found->scale == params.scale && found->zero_point == params.zero_point) return;
  params = *found;
  // What was rounded for other scales is not on the grid any more.
  input.quantized.rounded.erase(weight.quantizer->tensor);
  ++input.report.changed;
}

void search_all_ranges(const AlgorithmInput& input) {
  const std::vector<GridWeight> weights = grid_weights(input);
  if (weights.empty()) return;
  const auto statistics = statistics_of(weights, input);
  const RangeOptions options{input.option("least"), static_cast<int64_t>(input.option("steps"))};
  const int64_t before = input.report.changed;
  for (size_t w = 0; w < weights.size(); ++w) apply_ranges(weights[w], *statistics[w], options, input);
  if (input.report.changed == before) input.note("no weight gains by another range");
}

}  // namespace kaon
