#include <span>

#include "quant/so_far.h"
#include "quant/weight_ranges.h"

namespace kaon {
namespace {

void search_in_order(const AlgorithmInput& input) {
  std::vector<GridWeight> weights = grid_weights(input);
  if (weights.empty()) return;
  const RangeOptions options{input.option("least"), static_cast<int64_t>(input.option("steps"))};
  const std::vector<int64_t> begins = portions(std::ssize(weights));
  for (size_t part = 0; part + 1 < begins.size(); ++part) {
    const auto portion = std::span(weights).subspan(static_cast<size_t>(begins[part]),
                                                    static_cast<size_t>(begins[part + 1] - begins[part]));
    const auto statistics = quantized_statistics_of(portion, input);
    for (size_t w = 0; w < portion.size(); ++w) apply_ranges(portion[w], *statistics[w], options, input);
  }
  if (input.report.changed == 0) input.note("no weight gains by another range");
}

}  // namespace

void register_seq_mse(Registry<Algorithm>& algorithms) {
  algorithms.add("seq_mse", {.summary = "range_search on what layers read in the quantized network, from front to back",
                             .decides = Decides::Ranges,
                             .options = range_options(),
                             .run = search_in_order});
}

}  // namespace kaon
