#pragma once
#include "quant/weight_rounding.h"

namespace kaon {

/// What the first `count` of `weights` multiply in the network that is quantized but for `weights`, beside what they
/// multiply in the float model; those of the layers that share one are summed.
std::vector<std::shared_ptr<const InputStatistics>> paired_statistics_of(std::span<const GridWeight> weights,
                                                                         size_t count, const AlgorithmInput& input);

}  // namespace kaon
