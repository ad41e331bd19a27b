#include "quant/activation_ranges.h"
#include "quant/weight_ranges.h"

namespace kaon {
namespace {

Option of(const char* name, bool on, const char* help) {
  return {.name = name, .value = on ? 1.0 : 0.0, .min = 0, .max = 1, .help = help, .flag = true};
}

}  // namespace

void register_range_search(Registry<Algorithm>& algorithms) {
  std::vector<Option> options = range_options();
  options.push_back(of("weights", true, "ranges of weights are searched"));
  options.push_back(of("activations", false, "ranges of static activations are searched"));
  algorithms.add(
      "range_search",
      {.summary = "gives weights and activations the range with the least error of the layer's output",
       .decides = Decides::Ranges,
       .options = std::move(options),
       .run = [](const AlgorithmInput& input) {
         if (input.flag("weights")) search_all_ranges(input);
         if (input.flag("activations")) {
           search_activation_ranges(input, {input.option("least"), static_cast<int64_t>(input.option("steps"))});
         }
       }});
}

}  // namespace kaon
