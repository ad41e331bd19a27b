#pragma once
#include "base/progress.h"
#include "graph/dataset.h"
#include "quant/quantizer.h"

namespace kaon {

/// How data is run through a model to learn from it.
struct QuantizeSettings {
  int64_t batch = 8;  ///< samples a run, unless the model fixes it
  Progress* progress = &no_progress();
  bool allow_non_finite = false;  ///< NaN and Inf are no errors: debug says itself where they are
};

/// Whether the range of this quantizer is learned from data.
bool needs_data(const Quantizer& quantizer);

/// Runs `data` through the float model and gives every quantizer that needs_data() its parameters. Nothing of a batch
/// is kept but what the observers note, so memory does not grow with the data.
void calibrate_activations(QuantizedModel& quantized, const Dataset& data, const QuantizeSettings& settings);

/// Parameters of weights, from their values.
void calibrate_weights(QuantizedModel& quantized, const QuantizeSettings& settings);

/// Parameters of biases: s_x·s_w, once inputs and weights have theirs. A weight scale so small that its bias would not
/// fit into 32 bits is raised.
void calibrate_biases(QuantizedModel& quantized, const QuantizeSettings& settings);

}  // namespace kaon
