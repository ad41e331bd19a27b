#pragma once
#include <string>

#include "debug/debug_report.h"

namespace kaon {

/// What the numbers of a quantizer say, in plain words, the most telling first.
std::string read_quantizer(const QuantizerDebug& quantizer);

}  // namespace kaon
