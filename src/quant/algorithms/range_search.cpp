#include "quant/weight_ranges.h"

namespace kaon {
namespace {

void search_weights(const AlgorithmInput& input) {
  std::vector<GridWeight> weights = grid_weights(input);
  if (weights.empty()) return;
  const auto statistics = statistics_of(weights, input);
  const RangeOptions options{input.option("least"), static_cast<int64_t>(input.option("steps"))};
  for (size_t w = 0; w < weights.size(); ++w) apply_ranges(weights[w], *statistics[w], options, input);
  if (input.report.changed == 0) input.note("no weight gains by another range");
}

}  // namespace

void register_range_search(Registry<Algorithm>& algorithms) {
  algorithms.add("range_search", {.summary = "gives weights the range with the least error of the layer's output",
                                  .options = range_options(),
                                  .run = search_weights});
}

}  // namespace kaon
