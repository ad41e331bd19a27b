#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "debug/debug_report.h"
#include "eval/metrics.h"
#include "graph/dataset.h"

namespace kaon {

/// Compares the outputs of the two runs of a model, batch by batch.
class OutputWatch {
 public:
  explicit OutputWatch(const Graph& graph);

  /// What the float and the quantized model made of the samples from number `first` on. Labels count for the first
  /// output, where they are classes, one for each of its rows, in all batches.
  void see(const Batch& batch, int64_t first, int64_t samples, const std::vector<Tensor>& exact,
           const std::vector<Tensor>& quantized);
  std::vector<OutputDebug> finish() const;

 private:
  struct Output {
    std::string name;
    ErrorMetrics error;
    std::unique_ptr<Metric> agreement, top1, float_top1;  ///< null before something counted
    bool labels_fit = true;
  };
  std::vector<Output> outputs_;
};

}  // namespace kaon
