// Rounding with error feedback: Frantar et al. 2022, arXiv:2210.17323.
#include <algorithm>
#include <mutex>

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

void round_weights(const AlgorithmInput& input) {
  std::vector<GridWeight> weights = grid_weights(input);
  if (weights.empty()) return;
  const auto statistics = statistics_of(weights, input);
  const GptqOptions options{input.option("damping"), input.flag("act_order")};
  const bool clip = input.flag("clip") && !has_ranges(input.quantized);
  std::vector<FloatMatrix> codes;
  std::vector<std::vector<int64_t>> scales(weights.size());
  for (size_t w = 0; w < weights.size(); ++w) {
    codes.emplace_back(weights[w].exact.rows, weights[w].exact.cols);
    if (clip && !weights[w].is_float) scales[w] = scales_along_rows(weights[w]);
  }
  std::vector<double> damped(weights.size());
  std::mutex mutex;
  for_each_group(weights, [&](size_t w, int64_t group) {
    const Matrix target = exact_rows(weights[w], group);
    const Matrix& gram = statistics[w]->gram[static_cast<size_t>(group)];
    const GptqFactor factor = factor_for_gptq(gram, options, weights[w].name());
    if (!scales[w].empty()) narrow_ranges(weights[w], group, scales[w], costs_of(factor));
    round_gptq({weights[w], group, target, gram}, factor, codes[w]);
    const std::lock_guard lock(mutex);
    damped[w] = std::max(damped[w], factor.more);
  });
  for (size_t w = 0; w < weights.size(); ++w) {
    write_codes(input.quantized, weights[w], codes[w]);
    ++input.report.changed;
    if (damped[w] > 0) {
      input.note("{}: too few data tell its inputs apart; damped by a further {:.0e} of the mean diagonal",
                 weights[w].name(), damped[w]);
    }
  }
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
                                       .flag = true}},
                          .run = round_weights});
}

}  // namespace kaon
