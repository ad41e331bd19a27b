#pragma once
#include <optional>

#include "quant/quantizer.h"

namespace kaon {

/// A model that is quantized already, as ONNX says it: QuantizeLinear and DequantizeLinear on values, codes behind
/// DequantizeLinear. The float model without them, its quantizers with the parameters of the file, and a config that
/// asks for the same formats in the same places. Weights that are stored as codes are what their codes stand for: how
/// far that is from the network they came from, nobody knows any more. Nothing where the file has no quantizer.
std::optional<QuantizedModel> read_quantizers(const Model& file);

}  // namespace kaon
