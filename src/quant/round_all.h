#pragma once
#include <functional>

#include "quant/weight_rounding.h"

namespace kaon {

/// Rounds all weights on a grid. `round` gets a weight, the rows of one of its groups, and its codes as they are so
/// far. Where bias_correction follows in the config and the layers have biases, the mean of the error is left to it:
/// inputs count without their means.
void round_all(const AlgorithmInput& input,
               const std::function<void(GridWeight&, const GroupRows&, FloatMatrix& codes)>& round);

}  // namespace kaon
