#include "quant/weight_ranges.h"

namespace kaon {
namespace {

void search_weights(const AlgorithmInput& input) {
  std::vector<GridWeight> weights = grid_weights(input);
  if (weights.empty()) return;
  const auto statistics = statistics_of(weights, input);
  const RangeOptions options{input.option("least"), static_cast<int64_t>(input.option("steps"))};
  for (size_t w = 0; w < weights.size(); ++w) {
    RangeProblem problem{weights[w], {}, statistics[w]->gram};
    for (int64_t group = 0; group < weights[w].product.groups; ++group) {
      problem.targets.push_back(exact_rows(weights[w], group));
    }
    const std::optional<QuantParams> found = search_ranges(problem, options);
    if (!found) {
      input.note("{}: elements of several outputs share a scale; left alone", weights[w].name());
      continue;
    }
    QuantParams& params = weights[w].quantizer->params;
    if (found->scale == params.scale && found->zero_point == params.zero_point) continue;
    params = *found;
    // What was rounded for other scales is not on the grid any more.
    input.quantized.rounded.erase(weights[w].quantizer->tensor);
    ++input.report.changed;
  }
  if (input.report.changed == 0) input.note("no weight gains by another range");
}

}  // namespace

void register_range_search(Registry<Algorithm>& algorithms) {
  algorithms.add("range_search",
                 {.summary = "gives weights the range with the least error of the layer's output",
                  .options = {{.name = "least",
                               .value = 0.2,
                               .min = 0.01,
                               .max = 0.99,
                               .help = "smallest range that is tried, as a fraction of the largest weight"},
                              {.name = "steps",
                               .value = 64,
                               .min = 4,
                               .max = 10000,
                               .help = "ranges from there to all of it",
                               .whole = true}},
                  .run = search_weights});
}

}  // namespace kaon
