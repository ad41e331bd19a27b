// Rounding with error feedback: Frantar et al. 2022, arXiv:2210.17323.
#include <algorithm>
#include <mutex>

#include "quant/weight_rounding.h"

namespace kaon {
namespace {

void round_weights(const AlgorithmInput& input) {
  const std::vector<GridWeight> weights = grid_weights(input);
  if (weights.empty()) return;
  const auto statistics = statistics_of(weights, input);
  const GptqOptions options{input.option("damping"), input.flag("act_order")};
  std::vector<FloatMatrix> codes;
  for (const GridWeight& weight : weights) codes.emplace_back(weight.exact.rows, weight.exact.cols);
  std::vector<double> damped(weights.size());
  std::mutex mutex;
  for_each_group(weights, [&](size_t w, int64_t group) {
    const Matrix target = exact_rows(weights[w], group);
    const double more =
        round_gptq({weights[w], group, target, statistics[w]->gram[static_cast<size_t>(group)]}, options, codes[w]);
    const std::lock_guard lock(mutex);
    damped[w] = std::max(damped[w], more);
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
                                       .flag = true}},
                          .run = round_weights});
}

}  // namespace kaon
