#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "base/progress.h"
#include "graph/dataset.h"
#include "quant/quantizer.h"

namespace kaon {

/// What one quantizer does to the model's outputs, measured by switching it. Errors are Σ(y - y_float)² / Σ y_float²,
/// added up over the outputs.
struct OutputEffect {
  double without = 0;  ///< the error that is left when it alone is switched off
  double alone = 0;    ///< the error when it alone is switched on
};

struct OutputEffects {
  int64_t samples = 0;                ///< 0: not measured
  double all = 0;                     ///< the error with every quantizer as it is
  std::vector<OutputEffect> effects;  ///< by quantizer id

  /// The share of the error that goes when this quantizer goes; below 0 where it grows.
  double gain(int64_t id) const { return all > 0 ? 1 - effects[static_cast<size_t>(id)].without / all : 0; }
};

/// Switches every enabled quantizer of the model, one at a time, on the first samples of `data`: about one forward for
/// each quantizer. A state that is carried from run to run is that of the start here, for every sample.
OutputEffects measure_effects(const QuantizedModel& quantized, const Dataset& data, int64_t batch, Progress& progress);

}  // namespace kaon
