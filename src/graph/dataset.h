#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace kaon {

/// Some neighbouring samples of a dataset.
struct Batch {
  TensorMap inputs;  ///< named like the model's inputs; the first axis counts the samples
  Tensor labels;     ///< undefined where the dataset has none; the first axis counts the samples
};

/// The label that says: do not count this row.
inline constexpr int64_t kIgnoredLabel = -100;

/// Inputs whose first axis does not count the samples: the same at every run, or what the run before made.
struct SideInputs {
  std::set<std::string> names;               ///< all of them
  std::map<std::string, std::string> carry;  ///< output -> the input that it is at the next run
  int64_t restart = 0;                       ///< runs after which carried inputs start anew; 0: never
};

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
  /// Every batch holds these too, as they are at the start.
  virtual const SideInputs& side_inputs() const;
};

/// What one model carries from run to run while it goes through a dataset in order; nothing, for most.
class CarriedState {
 public:
  /// Throws InvalidInput where `graph` has no such output.
  CarriedState(const Dataset& data, const Graph& graph);

  /// The inputs of the next run.
  TensorMap enter(const Batch& batch);
  /// The outputs of that run, in the graph's order.
  void leave(const std::vector<Tensor>& outputs);

 private:
  const SideInputs& side_;
  std::map<std::string, size_t> from_;  ///< input -> index of the output
  TensorMap state_;
  int64_t runs_ = 0;
};

/// Samples that `graph` takes at a time: `wanted`, unless its inputs fix their first dimension. Throws InvalidInput
/// where wanted < 1 and Unsupported where the inputs, but for those `aside`, fix different numbers.
int64_t batch_for(const Graph& graph, int64_t wanted, const std::set<std::string>& aside = {});
/// The same, and throws InvalidInput where the samples of `data` are none or do not fill batches of a fixed size. Where
/// a state is carried, samples come one by one.
int64_t batch_for(const Graph& graph, int64_t wanted, const Dataset& data);

/// Throws InvalidInput naming input, sample and element where floating-point data hold a NaN or Inf. `first` is the
/// number of the batch's first sample.
void check_finite(const Batch& batch, int64_t first);

}  // namespace kaon
