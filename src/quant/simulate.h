#pragma once
#include "quant/quantizer.h"

namespace kaon {

/// `quantized` as a model that the engine runs: weights and biases hold their quantized values in float32, activations
/// pass FakeQuantize nodes. Quantizers that are not enabled leave no trace.
///
/// Values keep their names, and where a quantizer serves every reader of a value, that name holds the quantized one;
/// the float one before it is raw_name(v). Where only some readers see it, or v is an input of the graph, the quantized
/// value is quantized_name(v, id).
Model simulate(const QuantizedModel& quantized);

std::string raw_name(const std::string& value);                    ///< "v|raw"
std::string quantized_name(const std::string& value, int64_t id);  ///< "v|q3"

/// The name under which simulate() keeps what an activation's quantizer makes.
std::string simulated_value(const QuantizedModel& quantized, const Quantizer& quantizer);

}  // namespace kaon
