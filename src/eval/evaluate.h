#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/progress.h"
#include "engine/engine.h"
#include "graph/dataset.h"

namespace kaon {

struct EvalSettings {
  int64_t batch = 8;  ///< samples a run, unless the model fixes it
  Progress* progress = &no_progress();
};

struct EvalResult {
  int64_t samples = 0;
  std::vector<std::pair<std::string, double>> metrics;  ///< in the order asked for
  /// Where a reference was run: those of `metrics` that need labels alone, of the reference's own output.
  std::vector<std::pair<std::string, double>> reference_metrics;
  double seconds = 0;
};

const std::vector<std::string>& metric_names();
/// Both throw InvalidInput for an unknown name.
bool needs_labels(const std::string& metric);
bool needs_reference(const std::string& metric);

/// The first output of a model for some neighbouring samples: the batch, the number of its first sample, their count.
using OutputOf = std::function<Tensor(const Batch& batch, int64_t first, int64_t count)>;

/// Runs the model on all of `data` and computes `metrics` of its first output; those that need a reference compare it
/// with the first output of `reference`. Throws InvalidInput where labels or the reference are missing, and Numeric
/// where an output is NaN.
EvalResult evaluate(Engine& engine, const Dataset& data, const std::vector<std::string>& metrics,
                    Engine* reference = nullptr, const EvalSettings& settings = {});

/// The same of whatever gives outputs; an empty `reference` is none.
EvalResult evaluate(const OutputOf& model, const Dataset& data, const std::vector<std::string>& metrics,
                    const OutputOf& reference, const EvalSettings& settings);

}  // namespace kaon
