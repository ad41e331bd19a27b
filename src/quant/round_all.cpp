#include "quant/round_all.h"

#include <algorithm>
#include <numeric>

#include "quant/paired_statistics.h"
#include "quant/simulate.h"
#include "quant/so_far.h"

namespace kaon {
namespace {

/// Whether the layers have biases of their own, one for each row.
bool has_biases(const QuantizedModel& quantized, const GridWeight& weight) {
  return std::ranges::all_of(weight.layers, [&](const Layer* layer) {
    const Initializer* bias = quantized.model.graph.find_initializer(layer->bias);
    return bias != nullptr && bias->tensor.type() == DType::Float32 &&
           bias->tensor.size() == weight.product.all_rows() &&
           std::ranges::count(quantized.layers, layer->bias, &Layer::bias) == 1;
  });
}

bool bias_correction_follows(const QuantizedModel& quantized) {
  const auto& configs = quantized.config.algorithms;
  return std::ranges::find(configs, "bias_correction", &AlgorithmConfig::name) != configs.end();
}

/// Part of a vector with the numbers of all groups.
std::span<const double> of_group(const std::vector<double>& all, int64_t group, int64_t cols) {
  return std::span(all).subspan(static_cast<size_t>(group * cols), static_cast<size_t>(cols));
}

/// Σ y·xᵀ with the means taken off.
Matrix without_means(Matrix sums, std::span<const double> y, std::span<const double> x, int64_t count) {
  for (int64_t i = 0; i < sums.rows; ++i) {
    const double each = static_cast<double>(count) * y[static_cast<size_t>(i)];
    for (int64_t j = 0; j < sums.cols; ++j) sums(i, j) -= each * x[static_cast<size_t>(j)];
  }
  return sums;
}

void round_at_once(const AlgorithmInput& input, std::span<GridWeight> weights, const RoundRows& round,
                   std::vector<FloatMatrix>& codes) {
  const auto statistics = statistics_of(weights, input);
  const bool corrected = bias_correction_follows(input.quantized);
  for_each_group(weights, [&](size_t w, int64_t group) {
    const InputStatistics& seen = *statistics[w];
    const Matrix target = exact_rows(weights[w], group);
    const Matrix& gram = seen.gram[static_cast<size_t>(group)];
    if (corrected && has_biases(input.quantized, weights[w])) {
      const std::span<const double> mean = of_group(seen.mean, group, gram.cols);
      const Matrix centred = without_means(gram, mean, mean, seen.count);
      round(weights[w], {weights[w], group, target, centred, seen.count}, codes[w]);
    } else {
      round(weights[w], {weights[w], group, target, gram, seen.count}, codes[w]);
    }
  });
}

/// The rows that make of the quantized network's inputs most nearly what `exact` makes of the float network's:
/// W·(C + d)·(G + d)⁻¹, drawn towards W by the damping d.
Matrix best_rows(const Matrix& exact, Matrix gram, Matrix cross, const std::string& what) {
  constexpr double kDamping = 0.02;
  double mean = 0;
  for (int64_t i = 0; i < gram.rows; ++i) mean += gram(i, i) / static_cast<double>(gram.rows);
  if (mean <= 0) return exact;
  for (int64_t i = 0; i < gram.rows; ++i) {
    gram(i, i) += kDamping * mean;
    cross(i, i) += kDamping * mean;
  }
  const Matrix wanted = multiply(MatrixView(cross).t(), MatrixView(exact).t());
  const Matrix turned = solve_cholesky(damped_cholesky(gram, what).factor, wanted);
  Matrix rows(exact.rows, exact.cols);
  for (int64_t i = 0; i < rows.rows; ++i) {
    for (int64_t j = 0; j < rows.cols; ++j) rows(i, j) = turned(j, i);
  }
  return rows;
}

/// The first `count` of `weights`, on what the network makes of the data with all before them rounded. Biases are set
/// along with them.
void round_portion(const AlgorithmInput& input, PairedStatistics& pairs, std::span<GridWeight> weights, size_t count,
                   const RoundRows& round, std::span<FloatMatrix> codes) {
  QuantizedModel& quantized = input.quantized;
  const auto statistics = pairs.of(weights, count);
  weights = weights.first(count);
  std::vector<std::vector<float>> biases(weights.size());
  for (size_t w = 0; w < weights.size(); ++w) {
    if (weights[w].layers.size() > 1 || !has_biases(quantized, weights[w])) continue;
    biases[w] = quantized.model.graph.find_initializer(weights[w].layers[0]->bias)->tensor.to_float();
  }
  for_each_group(weights, [&](size_t w, int64_t group) {
    GridWeight& weight = weights[w];
    const InputStatistics& seen = *statistics[w];
    const Matrix exact = exact_rows(weight, group);
    Matrix gram = seen.gram[static_cast<size_t>(group)];
    Matrix cross = seen.cross[static_cast<size_t>(group)];
    const std::span<const double> x = of_group(seen.mean, group, gram.cols);
    // The first takes back what all before it lost; another one behind it would do so once more.
    const std::span<const double> y = of_group(w == 0 ? seen.other_mean : seen.mean, group, gram.cols);
    if (!biases[w].empty()) {
      gram = without_means(std::move(gram), x, x, seen.count);
      cross = without_means(std::move(cross), y, x, seen.count);
    }
    const Matrix target = w != 0 ? exact : best_rows(exact, gram, std::move(cross), weight.name());
    const GroupRows rows{weight, group, target, gram, seen.count};
    round(weight, rows, codes[w]);
    if (biases[w].empty()) return;
    for (int64_t r = 0; r < exact.rows; ++r) {
      const int64_t row = rows.first_row() + r;
      double shift = 0;
      for (int64_t c = 0; c < exact.cols; ++c) {
        const double rounded = static_cast<double>(codes[w](row, c)) * weight.step(row, c);
        shift += exact(r, c) * y[static_cast<size_t>(c)] - rounded * x[static_cast<size_t>(c)];
      }
      biases[w][static_cast<size_t>(row)] += static_cast<float>(shift);
    }
  });
  for (size_t w = 0; w < weights.size(); ++w) {
    if (biases[w].empty()) continue;
    const std::string& bias = weights[w].layers[0]->bias;
    quantized.rounded[bias] = Tensor::of(constant_of(quantized, bias).shape(), biases[w]);
  }
}

}  // namespace

void round_all(const AlgorithmInput& input, const RoundRows& round) {
  std::vector<GridWeight> weights = grid_weights(input);
  if (weights.empty()) return;
  std::vector<FloatMatrix> codes;
  for (const GridWeight& weight : weights) codes.push_back(codes_of(input.quantized, weight));
  const auto write = [&](size_t begin, size_t end) {
    for (size_t w = begin; w < end; ++w) write_codes(input.quantized, weights[w], codes[w]);
    input.report.changed += static_cast<int64_t>(end - begin);
  };
  if (!input.flag("sequential")) {
    round_at_once(input, weights, round, codes);
    return write(0, weights.size());
  }
  const std::vector<int64_t> begins = portions(std::ssize(weights));
  PairedStatistics pairs(input);
  for (size_t part = 0; part + 1 < begins.size(); ++part) {
    const auto begin = static_cast<size_t>(begins[part]), end = static_cast<size_t>(begins[part + 1]);
    round_portion(input, pairs, std::span(weights).subspan(begin), end - begin, round, std::span(codes).subspan(begin));
    write(begin, end);
  }
}

void DampingNotes::add(const GroupRows& rows, const GptqFactor& factor) {
  if (factor.more <= 0 && !factor.nothing && rows.seen >= rows.gram.cols) return;
  const std::lock_guard lock(mutex_);
  Found& found = found_[rows.weight.name()];
  found.groups = rows.weight.product.groups;
  found.empty += factor.nothing ? 1 : 0;
  found.cols = rows.gram.cols;
  found.seen = rows.seen;
  found.more = std::max(found.more, factor.more);
}

void DampingNotes::say(const AlgorithmInput& input) const {
  std::vector<std::string> layers;
  for (const auto& [name, found] : found_) {
    std::vector<std::string> reasons;
    if (found.empty > 0 && found.groups == 1) reasons.emplace_back("it reads nothing but zeros");
    if (found.empty > 0 && found.groups > 1) {
      reasons.push_back(fmt::format("{} of {} groups read nothing but zeros", found.empty, found.groups));
    }
    if (found.seen < found.cols) reasons.push_back(fmt::format("{} columns of {} numbers", found.seen, found.cols));
    if (found.more > 0) reasons.push_back(fmt::format("by a further {:.0e} of its mean diagonal", found.more));
    layers.push_back(fmt::format("{} ({})", name, fmt::join(reasons, ", ")));
  }
  if (layers.empty()) return;
  input.note("too few data to tell inputs apart, so what they say is damped: {}", fmt::join(layers, ", "));
}

Option sequential_option() {
  return {.name = "sequential",
          .value = 0,
          .min = 0,
          .max = 1,
          .help = "on what layers read in the quantized network, from front to back; sets biases too",
          .flag = true};
}

}  // namespace kaon
