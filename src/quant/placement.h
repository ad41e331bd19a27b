#pragma once
#include "quant/quantizer.h"

namespace kaon {

/// Puts the quantizers that `config` asks for on `model` (which has been through the standard passes), without
/// parameters. A value that several layers read gets one quantizer; a Relu or Clip behind a layer belongs to the layer;
/// where a layer's output is quantized, additions, concatenations, poolings and moves of quantized values are too, so
/// that a runtime can compute them in integers.
/// Throws InvalidConfig where a pattern of the config names no layer, or no layer is left to quantize.
QuantizedModel place_quantizers(Model model, const Config& config);

/// The axis of a layer's weight that counts output channels, and the one that is summed over (K).
int64_t channel_axis(const Graph& graph, const Layer& layer);
int64_t input_axis(const Graph& graph, const Layer& layer);

}  // namespace kaon
