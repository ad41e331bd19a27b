// Scales moved from activations to weights: Xiao et al. 2022, arXiv:2211.10438.
#include <cmath>

#include "quant/scale_search.h"

namespace kaon {
namespace {

std::vector<double> smoothing(const ChannelSizes& sizes, double strength) {
  std::vector<double> by;
  for (size_t c = 0; c < sizes.largest.size(); ++c) {
    by.push_back(std::pow(sizes.largest[c], strength) / std::pow(sizes.weight[c], 1 - strength));
  }
  return by;
}

}  // namespace

void register_smooth_quant(Registry<Algorithm>& algorithms) {
  algorithms.add("smooth_quant",
                 {.summary = "takes large channels out of what products read and gives them to the weights",
                  .stage = Stage::BeforeCalibration,
                  .options = {{.name = "strengths",
                               .value = 20,
                               .min = 1,
                               .max = 1000,
                               .help = "that are tried for each group",
                               .whole = true}},
                  .run = [](const AlgorithmInput& input) {
                    search_scales(input, smoothing, static_cast<int64_t>(input.option("strengths")));
                  }});
}

}  // namespace kaon
