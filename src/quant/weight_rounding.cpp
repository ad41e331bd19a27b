#include "quant/weight_rounding.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/parallel.h"
#include "engine/plan/simd.h"
#include "graph/stored.h"
#include "numerics/row_plan.h"
#include "quant/simulate.h"
#include "quant/so_far.h"

namespace kaon {

std::vector<int64_t> tiles_of(const Tiling& tiling) {
  const RowPlan plan(tiling);
  std::vector<int64_t> tiles(static_cast<size_t>(plan.element_count()));
  for (int64_t row = 0; row < plan.rows(); ++row) {
    for (int64_t i = 0; i < plan.row_size(); ++i) {
      tiles[static_cast<size_t>(row * plan.row_size() + i)] = plan.first_tile(row) + i / plan.tile();
    }
  }
  return tiles;
}

namespace {

/// Why a weight's quantizer has no grid to round on, or "".
std::string no_grid(const Quantizer& quantizer) {
  const Format& kind = format(quantizer.spec.format);
  if (kind.kind == FormatKind::Block || kind.bits > 8) {
    return fmt::format("{} is no integer or float of up to 8 bits", quantizer.spec.format);
  }
  if (quantizer.spec.rounding != Rounding::HalfEven && quantizer.spec.rounding != Rounding::HalfAway) {
    return "it is not rounded to the nearest";
  }
  return "";
}

void copy_rows(const LayerProduct& product, std::span<const float> from, FloatMatrix& to) {
  for (int64_t row = 0; row < to.rows; ++row) {
    for (int64_t col = 0; col < to.cols; ++col) to(row, col) = from[static_cast<size_t>(product.offset(row, col))];
  }
}

}  // namespace

float GridWeight::on_grid(double code, double zero_point) const {
  double unit = 1;
  if (is_float && code != 0) unit = std::ldexp(1.0, std::max(std::ilogb(code), lowest_exponent) - mantissa_bits);
  return static_cast<float>(std::clamp(std::nearbyint(code / unit) * unit, lowest - zero_point, highest - zero_point));
}

float GridWeight::nearest(double value, int64_t row, int64_t col) const {
  return on_grid(value / step(row, col), static_cast<double>(zero(row, col)));
}

void GridWeight::set_params(const QuantParams& params) {
  const std::vector<int64_t> tiles = tiles_of(tiling_of(quantizer->spec, layers.front()->weight_shape));
  for (int64_t row = 0; row < scale.rows; ++row) {
    for (int64_t col = 0; col < scale.cols; ++col) {
      const auto tile = static_cast<size_t>(tiles[static_cast<size_t>(product.offset(row, col))]);
      scale(row, col) = params.scale[tile];
      zero(row, col) = params.zero_point.empty() ? 0.0F : static_cast<float>(params.zero_point[tile]);
    }
  }
}

std::vector<GridWeight> grid_weights(const AlgorithmInput& input) {
  QuantizedModel& quantized = input.quantized;
  std::vector<GridWeight> weights;
  std::vector<std::string> left;
  for (Quantizer& quantizer : quantized.quantizers) {
    if (quantizer.kind != Slot::Weight || !quantizer.enabled) continue;
    GridWeight weight;
    weight.quantizer = &quantizer;
    std::string reason = no_grid(quantizer);
    for (const Layer& layer : quantized.layers) {
      if (quantized.find(layer.name, Slot::Weight) != &quantizer) continue;
      LayerProduct product = product_of(quantized.model.graph, layer);
      if (!product.refused.empty()) reason = product.refused;
      const bool alike = weight.layers.empty() ||
                         (product.groups == weight.product.groups && product.cols_first == weight.product.cols_first);
      if (!alike) reason = "its layers multiply with it in different ways";
      weight.product = std::move(product);
      weight.layers.push_back(&layer);
    }
    if (weight.layers.empty()) continue;
    if (!reason.empty()) {
      left.push_back(fmt::format("{} ({})", weight.name(), reason));
      continue;
    }
    const LayerProduct& product = weight.product;
    weight.exact = weight.scale = weight.zero = FloatMatrix(product.all_rows(), product.cols);
    copy_rows(product, widened(find_stored(quantized.model.graph, quantizer.tensor)->tensor).as<float>(), weight.exact);
    const Format& kind = format(quantizer.spec.format);
    weight.is_float = kind.kind == FormatKind::Float;
    weight.lowest_exponent = 1 - kind.bias;
    weight.mantissa_bits = kind.mantissa_bits;
    weight.lowest = weight.is_float ? kind.min() : static_cast<double>(kind.integer_min());
    weight.highest = weight.is_float ? kind.max() : static_cast<double>(kind.integer_max());
    weight.set_params(quantizer.params);
    weights.push_back(std::move(weight));
  }
  if (!left.empty()) input.note("left alone: {}", fmt::join(left, ", "));
  if (weights.empty() && left.empty()) input.note("no weight is quantized");
  return weights;
}

namespace {

using Statistics = std::vector<std::shared_ptr<const InputStatistics>>;

/// `value_of` says which value of `model` a layer reads.
Statistics statistics_in(const Model& model, std::span<const GridWeight> weights, const AlgorithmInput& input,
                         const std::function<std::string(const Layer&)>& value_of) {
  std::vector<StatisticsRequest> requests;
  for (const GridWeight& weight : weights) {
    for (const Layer* layer : weight.layers) {
      requests.push_back({layer->name, value_of(*layer), product_of(input.quantized.model.graph, *layer)});
    }
  }
  const auto found = collect_statistics(model, requests, *input.data, input.settings);
  Statistics statistics;
  for (const GridWeight& weight : weights) {
    statistics.push_back(found.at(weight.name()));
    if (weight.layers.size() == 1) continue;
    auto sum = std::make_shared<InputStatistics>(*statistics.back());
    for (size_t i = 1; i < weight.layers.size(); ++i) sum->add(*found.at(weight.layers[i]->name));
    statistics.back() = std::move(sum);
  }
  return statistics;
}

}  // namespace

Statistics statistics_of(std::span<const GridWeight> weights, const AlgorithmInput& input) {
  return statistics_in(input.quantized.model, weights, input, [](const Layer& layer) { return layer.input; });
}

Statistics quantized_statistics_of(std::span<const GridWeight> weights, const AlgorithmInput& input) {
  return statistics_in(simulate_so_far(input.quantized), weights, input,
                       [&](const Layer& layer) { return read_so_far(input.quantized, layer); });
}

FloatMatrix codes_of(const QuantizedModel& quantized, const GridWeight& weight) {
  FloatMatrix codes(weight.exact.rows, weight.exact.cols);
  copy_rows(weight.product, widened(constant_of(quantized, weight.quantizer->tensor)).as<float>(), codes);
  for (int64_t row = 0; row < codes.rows; ++row) {
    for (int64_t col = 0; col < codes.cols; ++col) {
      codes(row, col) = weight.nearest(static_cast<double>(codes(row, col)), row, col);
    }
  }
  return codes;
}

void write_codes(QuantizedModel& quantized, const GridWeight& weight, const FloatMatrix& codes) {
  std::vector<float> values(codes.data.size());
  for (int64_t row = 0; row < codes.rows; ++row) {
    for (int64_t col = 0; col < codes.cols; ++col) {
      values[static_cast<size_t>(weight.product.offset(row, col))] = codes(row, col) * weight.scale(row, col);
    }
  }
  const Shape& shape = weight.layers.front()->weight_shape;
  weight.quantizer->apply(values, values, shape);
  quantized.rounded[weight.quantizer->tensor] = Tensor::of(shape, std::move(values));
}

std::vector<double> row_errors(const GroupRows& rows, const FloatMatrix& codes) {
  const int64_t count = rows.target.rows;
  Matrix lost(count, rows.target.cols);
  for (int64_t r = 0; r < count; ++r) {
    const int64_t row = rows.first_row() + r;
    for (int64_t c = 0; c < lost.cols; ++c) {
      lost(r, c) = static_cast<double>(codes(row, c)) * rows.weight.step(row, c) - rows.target(r, c);
    }
  }
  const Matrix pulled = multiply(lost, rows.gram);
  std::vector<double> errors(static_cast<size_t>(count));
  for (int64_t r = 0; r < count; ++r) {
    errors[static_cast<size_t>(r)] =
        std::inner_product(lost.row(r).begin(), lost.row(r).end(), pulled.row(r).begin(), 0.0);
  }
  return errors;
}

namespace {

double mean_of_diagonal(const Matrix& gram) {
  double sum = 0;
  for (int64_t i = 0; i < gram.rows; ++i) sum += gram(i, i);
  return sum / static_cast<double>(std::max<int64_t>(1, gram.rows));
}

}  // namespace

GptqFactor factor_for_gptq(const Matrix& gram, const GptqOptions& options, const std::string& what) {
  const int64_t cols = gram.cols;
  GptqFactor result;
  result.order.resize(static_cast<size_t>(cols));
  std::iota(result.order.begin(), result.order.end(), 0);
  if (options.act_order) {
    std::ranges::stable_sort(result.order, [&](int64_t a, int64_t b) { return gram(a, a) > gram(b, b); });
  }
  const double mean = mean_of_diagonal(gram);
  // Backwards: where G turned round is L·Lᵀ, L⁻¹ turned round is U.
  const auto from_end = [&](int64_t i) { return cols - 1 - i; };
  Matrix turned(cols, cols);
  for (int64_t i = 0; i < cols; ++i) {
    const int64_t from = result.order[static_cast<size_t>(from_end(i))];
    for (int64_t j = 0; j <= i; ++j) turned(i, j) = gram(from, result.order[static_cast<size_t>(from_end(j))]);
    // Nothing ever comes in: any code does.
    turned(i, i) += mean > 0 ? options.damping * mean : 1;
  }
  const DampedCholesky damped = damped_cholesky(turned, what);
  const Matrix inverse = inverse_of_lower(damped.factor);
  result.lower = FloatMatrix(cols, cols);
  for (int64_t i = 0; i < cols; ++i) {
    for (int64_t j = 0; j <= i; ++j) result.lower(i, j) = static_cast<float>(inverse(from_end(j), from_end(i)));
  }
  result.more = mean > 0 ? damped.damping / mean : 0;
  result.nothing = mean <= 0;
  return result;
}

namespace {

/// Some rows of a group, column after column in the order of a factor.
struct RowTile {
  static constexpr int64_t kRows = 32;

  explicit RowTile(int64_t cols)
      : left(static_cast<size_t>(cols * kRows)), codes(left.size()), scale(left.size()), zero(left.size()) {}

  std::vector<float> left;  ///< what is to be rounded; of columns that are, the error over lower(i, i)
  std::vector<float> codes;
  std::vector<float> scale;
  std::vector<float> zero;
  double errors[kRows] = {};
};

using Lanes = float __attribute__((vector_size(64), aligned(alignof(float)), may_alias));

/// Takes from four columns what those before them lost.
[[gnu::always_inline]] inline void take_back(const FloatMatrix& lower, int64_t first, float* left) {
  static_assert(2 * sizeof(Lanes) == RowTile::kRows * sizeof(float));
  const float *a = &lower.data[static_cast<size_t>(first * lower.cols)], *b = a + lower.cols, *c = b + lower.cols,
              *d = c + lower.cols;
  const auto* lost = reinterpret_cast<const Lanes*>(left);
  Lanes* to = reinterpret_cast<Lanes*>(left) + 2 * first;
  Lanes a0 = to[0], a1 = to[1], b0 = to[2], b1 = to[3], c0 = to[4], c1 = to[5], d0 = to[6], d1 = to[7];
  for (int64_t j = 0; j < first; ++j) {
    const Lanes x0 = lost[2 * j], x1 = lost[2 * j + 1];
    a0 -= a[j] * x0;
    a1 -= a[j] * x1;
    b0 -= b[j] * x0;
    b1 -= b[j] * x1;
    c0 -= c[j] * x0;
    c1 -= c[j] * x1;
    d0 -= d[j] * x0;
    d1 -= d[j] * x1;
  }
  to[0] = a0, to[1] = a1, to[2] = b0, to[3] = b1, to[4] = c0, to[5] = c1, to[6] = d0, to[7] = d1;
}

KAON_SIMD void round_tile(const GridWeight& weight, const FloatMatrix& lower, RowTile& tile) {
  constexpr int64_t kRows = RowTile::kRows, kTogether = 4;
  // Added and taken off again, it leaves a small number rounded, half to even.
  constexpr float kRounds = 0x1.8p23F;
  const int64_t cols = lower.cols;
  const auto lowest = static_cast<float>(weight.lowest), highest = static_cast<float>(weight.highest);
  double errors[kRows] = {};
  for (int64_t i = 0; i < cols; ++i) {
    const int64_t first = i / kTogether * kTogether;
    const bool together = first + kTogether <= cols;
    if (i == first && together) take_back(lower, first, tile.left.data());
    float* left = tile.left.data() + i * kRows;
    for (int64_t j = together ? first : 0; j < i; ++j) {
      const float* lost = tile.left.data() + j * kRows;
      for (int64_t r = 0; r < kRows; ++r) left[r] -= lower(i, j) * lost[r];
    }
    const float* scale = tile.scale.data() + i * kRows;
    const float* zero = tile.zero.data() + i * kRows;
    float* codes = tile.codes.data() + i * kRows;
    if (weight.is_float) {
      for (int64_t r = 0; r < kRows; ++r) {
        codes[r] = weight.on_grid(static_cast<double>(left[r] / scale[r]), static_cast<double>(zero[r]));
      }
    } else {
      for (int64_t r = 0; r < kRows; ++r) {
        const float low = lowest - zero[r], high = highest - zero[r];
        codes[r] = std::min(std::max(left[r] / scale[r], low), high) + kRounds - kRounds;
      }
    }
    for (int64_t r = 0; r < kRows; ++r) {
      const float error = (left[r] - codes[r] * scale[r]) / lower(i, i);
      errors[r] += static_cast<double>(error) * static_cast<double>(error);
      left[r] = error;
    }
  }
  std::ranges::copy(errors, tile.errors);
}

}  // namespace

std::vector<double> round_gptq(const GroupRows& rows, const GptqFactor& factor, FloatMatrix& codes) {
  constexpr int64_t kRows = RowTile::kRows;
  const GridWeight& weight = rows.weight;
  const int64_t cols = rows.target.cols, count = rows.target.rows;
  std::vector<double> errors(static_cast<size_t>(count));
  parallel_for(0, (count + kRows - 1) / kRows, 1, [&](int64_t begin, int64_t end) {
    RowTile tile(cols);
    for (int64_t first = begin * kRows; first < std::min(end * kRows, count); first += kRows) {
      const int64_t used = std::min(kRows, count - first);
      for (int64_t r = 0; r < kRows; ++r) {
        const int64_t from = std::min(first + r, count - 1), row = rows.first_row() + from;  // the last fill it up
        for (int64_t i = 0; i < cols; ++i) {
          const int64_t col = factor.order[static_cast<size_t>(i)];
          const auto at = static_cast<size_t>(i * kRows + r);
          tile.left[at] = static_cast<float>(rows.target(from, col));
          tile.scale[at] = weight.scale(row, col);
          tile.zero[at] = weight.zero(row, col);
        }
      }
      round_tile(weight, factor.lower, tile);
      for (int64_t r = 0; r < used; ++r) {
        errors[static_cast<size_t>(first + r)] = tile.errors[r];
        const std::span<float> row = codes.row(rows.first_row() + first + r);
        for (int64_t i = 0; i < cols; ++i) {
          row[static_cast<size_t>(factor.order[static_cast<size_t>(i)])] =
              tile.codes[static_cast<size_t>(i * kRows + r)];
        }
      }
    }
  });
  return errors;
}

void descend(const GroupRows& rows, double damping, int64_t sweeps, FloatMatrix& codes) {
  const GridWeight& weight = rows.weight;
  const Matrix& gram = rows.gram;
  const int64_t cols = gram.cols;
  const double extra = damping * mean_of_diagonal(gram);
  parallel_for(0, rows.target.rows, 1, [&](int64_t first, int64_t last) {
    std::vector<double> pull(static_cast<size_t>(cols));
    for (int64_t r = first; r < last; ++r) {
      const int64_t row = rows.first_row() + r;
      // pull = (G + extra·I)·(w' - w)
      std::ranges::fill(pull, 0.0);
      const auto move = [&](int64_t col, double by) {
        const std::span<const double> line = gram.row(col);
        for (size_t k = 0; k < pull.size(); ++k) pull[k] += by * line[k];
        pull[static_cast<size_t>(col)] += by * extra;
      };
      for (int64_t c = 0; c < cols; ++c) {
        move(c, static_cast<double>(codes(row, c)) * weight.step(row, c) - rows.target(r, c));
      }
      for (int64_t sweep = 0; sweep < sweeps; ++sweep) {
        bool changed = false;
        for (int64_t c = 0; c < cols; ++c) {
          const double curvature = gram(c, c) + extra;
          if (curvature <= 0) continue;
          const double step = weight.step(row, c);
          const double wanted = static_cast<double>(codes(row, c)) - pull[static_cast<size_t>(c)] / curvature / step;
          const float code = weight.on_grid(wanted, static_cast<double>(weight.zero(row, c)));
          if (code == codes(row, c)) continue;
          const double by = static_cast<double>(code - codes(row, c)) * step;
          // Rounding errors must not make it walk in circles.
          if (by * (2 * pull[static_cast<size_t>(c)] + by * curvature) >= -1e-12 * curvature * step * step) continue;
          codes(row, c) = code;
          move(c, by);
          changed = true;
        }
        if (!changed) break;
      }
    }
  });
}

void for_each_group(std::span<const GridWeight> weights, const std::function<void(size_t, int64_t)>& body) {
  constexpr int64_t kLarge = 1024;  // columns; what is at work on one then takes 50 MiB and more
  std::vector<std::pair<size_t, int64_t>> small;
  for (size_t w = 0; w < weights.size(); ++w) {
    for (int64_t group = 0; group < weights[w].product.groups; ++group) {
      if (weights[w].product.cols > kLarge) {
        body(w, group);
      } else {
        small.emplace_back(w, group);
      }
    }
  }
  std::atomic<size_t> next = 0;
  parallel_for(0, std::min<int64_t>(std::ssize(small), thread_count()), 1, [&](int64_t, int64_t) {
    for (size_t i = next++; i < small.size(); i = next++) body(small[i].first, small[i].second);
  });
}

Matrix exact_rows(const GridWeight& weight, int64_t group) {
  const int64_t rows = weight.product.rows;
  const auto begin = weight.exact.data.begin() + group * rows * weight.product.cols;
  Matrix exact(rows, weight.product.cols);
  std::copy(begin, begin + std::ssize(exact.data), exact.data.begin());
  return exact;
}

}  // namespace kaon
