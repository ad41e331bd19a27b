#pragma once
#include "quant/weight_ranges.h"

namespace kaon {

/// Gives every static activation with one scale the range, from `options.least` of what calibration saw to all of it,
/// that leaves the least error of what the layers make that read it; where others read it too, its own error counts
/// beside.
void search_activation_ranges(const AlgorithmInput& input, const RangeOptions& options);

}  // namespace kaon
