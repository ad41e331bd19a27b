#pragma once
#include <functional>
#include <vector>

#include "quant/algorithm.h"

namespace kaon {

/// Sizes of a group's channels, as products read them.
struct ChannelSizes {
  std::vector<double> largest;  ///< magnitude in the data
  std::vector<double> mean;     ///< of the magnitudes
  std::vector<double> weight;   ///< largest magnitude of the weights that multiply it
};

/// By what the channels of a group are divided, for a strength from 0 to 1; all of them above 0.
using ScaleRule = std::function<std::vector<double>(const ChannelSizes& sizes, double strength)>;

/// Gives each group of products the strength of `steps` + 1 from 0 to 1 that leaves the least error of their outputs
/// over rows of the data, weights and inputs quantized as the config wants them; a group that gains by none stays as it
/// is.
void search_scales(const AlgorithmInput& input, const ScaleRule& rule, int64_t steps);

}  // namespace kaon
