#pragma once
#include "quant/quantizer.h"

namespace kaon {

/// What algorithms after calibration see of the quantized network: biases have no parameters yet and stay float.
Model simulate_so_far(const QuantizedModel& quantized);

/// The value of simulate_so_far() that a layer multiplies with.
std::string read_so_far(const QuantizedModel& quantized, const Layer& layer);

/// Cuts `count` layers, in the order of the graph, into portions for algorithms that go through the quantized network
/// from front to back: each takes one pass over the data. Returns where each begins, and the end.
std::vector<int64_t> portions(int64_t count);

}  // namespace kaon
