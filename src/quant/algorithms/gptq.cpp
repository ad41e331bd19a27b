// Rounding with error feedback: Frantar et al. 2022, arXiv:2210.17323.
#include <algorithm>
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
    if (!own.empty()) narrow_ranges(weight, rows.group, own, costs_of(factor));
    round_gptq(rows, factor, codes);
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
