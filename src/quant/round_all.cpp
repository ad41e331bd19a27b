#include "quant/round_all.h"

#include <algorithm>

namespace kaon {
namespace {

/// Whether bias_correction will take back the mean of the error.
bool leaves_mean(const QuantizedModel& quantized, const GridWeight& weight) {
  const auto& configs = quantized.config.algorithms;
  if (std::ranges::find(configs, "bias_correction", &AlgorithmConfig::name) == configs.end()) return false;
  return std::ranges::all_of(weight.layers, [&](const Layer* layer) {
    const Initializer* bias = quantized.model.graph.find_initializer(layer->bias);
    return bias != nullptr && bias->tensor.type() == DType::Float32 && bias->tensor.size() == weight.product.all_rows();
  });
}

Matrix without_means(Matrix gram, int64_t group, const InputStatistics& statistics) {
  const auto mean = [&](int64_t col) { return statistics.mean[static_cast<size_t>(group * gram.cols + col)]; };
  for (int64_t i = 0; i < gram.rows; ++i) {
    const double each = static_cast<double>(statistics.count) * mean(i);
    for (int64_t j = 0; j < gram.cols; ++j) gram(i, j) -= each * mean(j);
  }
  return gram;
}

}  // namespace

void round_all(const AlgorithmInput& input,
               const std::function<void(GridWeight&, const GroupRows&, FloatMatrix& codes)>& round) {
  std::vector<GridWeight> weights = grid_weights(input);
  if (weights.empty()) return;
  const auto statistics = statistics_of(weights, input);
  std::vector<FloatMatrix> codes;
  for (const GridWeight& weight : weights) codes.push_back(codes_of(input.quantized, weight));
  for_each_group(weights, [&](size_t w, int64_t group) {
    const Matrix target = exact_rows(weights[w], group);
    const Matrix& gram = statistics[w]->gram[static_cast<size_t>(group)];
    if (leaves_mean(input.quantized, weights[w])) {
      const Matrix centred = without_means(gram, group, *statistics[w]);
      round(weights[w], {weights[w], group, target, centred}, codes[w]);
    } else {
      round(weights[w], {weights[w], group, target, gram}, codes[w]);
    }
  });
  for (size_t w = 0; w < weights.size(); ++w) {
    write_codes(input.quantized, weights[w], codes[w]);
    ++input.report.changed;
  }
}

}  // namespace kaon
