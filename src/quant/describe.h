#pragma once
#include <string>

#include "quant/quantizer.h"

namespace kaon {

/// The model as a list of its layers, and of the operators between them that have one, each with the quantizers at its
/// slots: format, granularity, scale, zero point and the smallest and largest value seen.
std::string describe(const QuantizedModel& quantized);

/// One quantizer in one line, without its place.
std::string describe(const Quantizer& quantizer);

}  // namespace kaon
