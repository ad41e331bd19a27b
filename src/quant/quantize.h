#pragma once
#include "quant/calibrate.h"
#include "quant/quantizer.h"

namespace kaon {

/// Puts the quantizers that `config` asks for on `model` and gives them parameters: weights from their values, static
/// activations from `calibration`, which may be null where nothing must be calibrated (needs_calibration()).
/// Layers that the config asks for but that cannot be quantized are listed in `skipped`.
QuantizedModel quantize(Model model, const Config& config, const Dataset* calibration = nullptr,
                        const QuantizeSettings& settings = {});

}  // namespace kaon
