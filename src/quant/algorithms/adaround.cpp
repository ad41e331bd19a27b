// Rounding that minimises the error of a layer's output instead of the weight's (Nagel et al. 2020, arXiv:2004.10568).
// That error is a quadratic form of the codes, so they are searched themselves, without the relaxation of that paper.
#include <algorithm>

#include "quant/round_all.h"

namespace kaon {
namespace {

/// Of two sets of codes, row by row those with the smaller error.
void keep_better(const GroupRows& rows, const FloatMatrix& other, FloatMatrix& codes) {
  const std::vector<double> ours = row_errors(rows, codes);
  const std::vector<double> theirs = row_errors(rows, other);
  for (size_t r = 0; r < ours.size(); ++r) {
    const int64_t row = rows.first_row() + static_cast<int64_t>(r);
    if (theirs[r] < ours[r]) std::ranges::copy(other.row(row), codes.row(row).begin());
  }
}

void round_weights(const AlgorithmInput& input) {
  const double damping = input.option("damping");
  const auto sweeps = static_cast<int64_t>(input.option("sweeps"));
  DampingNotes damped;
  round_all(input, [&](GridWeight& weight, const GroupRows& rows, FloatMatrix& codes) {
    descend(rows, damping, sweeps, codes);
    FloatMatrix others(codes.rows, codes.cols);
    const GptqFactor factor = factor_for_gptq(rows.gram, {damping, true}, weight.name());
    damped.add(rows, factor);
    round_gptq(rows, factor, others);
    descend(rows, damping, sweeps, others);
    keep_better(rows, others, codes);
  });
  damped.say(input);
}

}  // namespace

void register_adaround(Registry<Algorithm>& algorithms) {
  algorithms.add("adaround",
                 {.summary = "searches the rounding of weights with the least error of the layer's output",
                  .decides = Decides::BetterCodes,
                  .options = {{.name = "damping",
                               .value = 0.001,
                               .min = 0,
                               .max = 10,
                               .help = "weight of the error of the weights themselves, relative to the mean diagonal"},
                              {.name = "sweeps",
                               .value = 50,
                               .min = 1,
                               .max = 10000,
                               .help = "most passes over the codes of a row",
                               .whole = true},
                              sequential_option()},
                  .run = round_weights});
}

}  // namespace kaon
