#pragma once
#include <string>

#include "base/progress.h"
#include "debug/debug_report.h"
#include "graph/dataset.h"

namespace kaon {

struct DebugOptions {
  bool act_hist = false;     ///< histograms of activations, too
  bool nan = false;          ///< look at every value of both runs, stop at the first NaN or Inf
  bool effects = true;       ///< switch every quantizer to see what it does to the outputs: a forward for each
  std::string layers = "*";  ///< glob: only slots of these layers
  int64_t batch = 8;         ///< samples a run, unless the model fixes it
  Progress* progress = &no_progress();
};

/// Runs `data` through the float model and the simulated one side by side, node by node: two forwards a batch, and no
/// more kept than the values alive. Throws InvalidInput where `layers` matches none.
DebugReport debug(const QuantizedModel& quantized, const Dataset& data, const DebugOptions& options = {});
/// Weights and biases alone. Throws InvalidConfig where activations are quantized: those need data.
DebugReport debug(const QuantizedModel& quantized, const DebugOptions& options = {});

}  // namespace kaon
