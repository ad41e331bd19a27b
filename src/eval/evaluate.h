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
  int64_t batch = 8;                 ///< samples a run, unless the model fixes it
  std::vector<std::string> outputs;  ///< those to look at, by name; empty: all
  Progress* progress = &no_progress();
};

/// In the order asked for.
using Metrics = std::vector<std::pair<std::string, double>>;

/// The metrics of one output; NaN where there was nothing to count.
struct OutputMetrics {
  std::string name;
  Metrics metrics;
};

struct EvalResult {
  int64_t samples = 0;
  Metrics metrics;                     ///< of the output where each is worst
  std::vector<OutputMetrics> outputs;  ///< of those that were looked at
  /// Where a reference was run: those of `metrics` that need labels alone, of the reference's own output.
  Metrics reference_metrics;
  double seconds = 0;
};

const std::vector<std::string>& metric_names();
/// Both throw InvalidInput for an unknown name.
bool needs_labels(const std::string& metric);
bool needs_reference(const std::string& metric);

/// Something that is evaluated: the names of its outputs, and what gives them for some neighbouring samples (the batch,
/// the number of its first sample, their count).
struct Evaluated {
  std::vector<std::string> outputs;
  std::function<std::vector<Tensor>(const Batch& batch, int64_t first, int64_t count)> run;
};

/// Runs the model on all of `data` and computes `metrics`. Those that need labels look at the first output, or the
/// first of those that the settings choose; those that need a reference compare every output with that of its name,
/// else of its place, in `reference`. Throws InvalidInput where labels or the reference are missing, and Numeric where
/// an output is NaN.
EvalResult evaluate(Engine& engine, const Dataset& data, const std::vector<std::string>& metrics,
                    Engine* reference = nullptr, const EvalSettings& settings = {});

/// The same of whatever gives outputs.
EvalResult evaluate(const Evaluated& model, const Dataset& data, const std::vector<std::string>& metrics,
                    const Evaluated* reference, const EvalSettings& settings);

}  // namespace kaon
