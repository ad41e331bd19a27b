#include "quant/quantize.h"

#include <algorithm>

#include "base/error.h"
#include "engine/engine.h"
#include "graph/compute_in_float32.h"
#include "graph/pass.h"
#include "quant/algorithm.h"
#include "quant/placement.h"

namespace kaon {
namespace {

/// Specs that no calibration can serve.
void check_specs(const QuantizedModel& quantized) {
  for (const Quantizer& quantizer : quantized.quantizers) {
    const bool one_or_channel =
        quantizer.spec.granularity == Granularity::PerTensor || quantizer.spec.granularity == Granularity::PerChannel;
    if (needs_data(quantizer) && !one_or_channel) {
      fail(ErrorCode::InvalidConfig, quantizer.label(),
           "{} activations cannot be static; use per_tensor or per_channel, or \"dynamic\": true",
           enum_name(quantizer.spec.granularity));
    }
    if (quantizer.kind == Slot::Weight && quantizer.spec.granularity == Granularity::PerToken) {
      fail(ErrorCode::InvalidConfig, quantizer.label(), "a weight has no tokens; use per_channel or per_group");
    }
  }
}

}  // namespace

QuantizedModel quantize(Model model, const Config& config, const Dataset* calibration,
                        const QuantizeSettings& settings) {
  compute_in_float32(model);
  PassContext context;
  context.evaluate = evaluate_node;
  run_passes(model, context);
  QuantizedModel quantized = place_quantizers(model, config);
  quantized.original = std::move(model);
  check_specs(quantized);
  const auto learner = std::find_if(quantized.quantizers.begin(), quantized.quantizers.end(), needs_data);
  if (learner != quantized.quantizers.end() && calibration == nullptr) {
    fail(ErrorCode::InvalidConfig, learner->label(),
         "static quantization learns this range from data; give calibration data, or choose a dynamic or weight-only "
         "scheme");
  }
  run_algorithms(quantized, Stage::BeforeCalibration, calibration, settings);
  calibrate_weights(quantized, settings);
  if (learner != quantized.quantizers.end()) calibrate_activations(quantized, *calibration, settings);
  run_algorithms(quantized, Stage::AfterCalibration, calibration, settings);
  calibrate_biases(quantized, settings);
  return quantized;
}

}  // namespace kaon
