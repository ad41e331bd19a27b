#pragma once
#include <cstdint>
#include <memory>

#include "graph/graph.h"

namespace kaon {

/// Some neighbouring samples of a dataset.
struct Batch {
  TensorMap inputs;  ///< named like the model's inputs; the first axis counts the samples
  Tensor labels;     ///< undefined where the dataset has none; the first axis counts the samples
};

/// The label that says: do not count this row.
inline constexpr int64_t kIgnoredLabel = -100;

/// Samples to calibrate, evaluate or train on. Reading is what costs: nothing is kept between calls unless the source
/// lies in memory anyway.
class Dataset {
 public:
  virtual ~Dataset() = default;
  /// How many samples there are.
  virtual int64_t size() const = 0;
  virtual bool has_labels() const = 0;
  /// Samples first, first + 1 … first + count - 1, all of them below size(). Throws naming the file or array at fault.
  virtual Batch read(int64_t first, int64_t count) const = 0;
};

/// Samples that `graph` takes at a time: `wanted`, unless its inputs fix their first dimension. Throws InvalidInput
/// where wanted < 1 and Unsupported where the inputs fix different numbers.
int64_t batch_for(const Graph& graph, int64_t wanted);
/// The same, and throws InvalidInput where the samples of `data` are none or do not fill batches of a fixed size.
int64_t batch_for(const Graph& graph, int64_t wanted, const Dataset& data);

/// Throws InvalidInput naming input, sample and element where floating-point data hold a NaN or Inf. `first` is the
/// number of the batch's first sample.
void check_finite(const Batch& batch, int64_t first);

}  // namespace kaon
