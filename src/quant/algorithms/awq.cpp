// Channels that matter more are rounded with finer steps: Lin et al. 2023, arXiv:2306.00978.
#include <algorithm>
#include <cmath>

#include "quant/scale_search.h"
#include "quant/weight_ranges.h"

namespace kaon {
namespace {

std::vector<double> by_importance(const ChannelSizes& sizes, double strength) {
  double least = INFINITY, most = 0;
  for (const double mean : sizes.mean) {
    if (!(mean > 0)) continue;
    least = std::min(least, mean);
    most = std::max(most, mean);
  }
  const double middle = std::sqrt(least * most);
  std::vector<double> by;
  for (const double mean : sizes.mean) by.push_back(mean > 0 ? std::pow(mean / middle, strength) : 1);
  return by;
}

}  // namespace

void register_awq(Registry<Algorithm>& algorithms) {
  std::vector<Option> options = {
      {.name = "strengths", .value = 20, .min = 1, .max = 1000, .help = "that are tried for each group", .whole = true},
      {.name = "clip",
       .value = 1,
       .min = 0,
       .max = 1,
       .help = "then also searches the ranges of weights, as range_search does",
       .flag = true}};
  std::ranges::copy(range_options(), std::back_inserter(options));
  algorithms.add("awq", {.summary = "scales up weights whose inputs are large, so that rounding hurts them less",
                         .stage = Stage::BeforeCalibration,
                         .decides = Decides::Ranges,
                         .options = std::move(options),
                         .run =
                             [](const AlgorithmInput& input) {
                               search_scales(input, by_importance, static_cast<int64_t>(input.option("strengths")));
                             },
                         .after =
                             [](const AlgorithmInput& input) {
                               if (input.flag("clip")) search_all_ranges(input);
                             }});
}

}  // namespace kaon
