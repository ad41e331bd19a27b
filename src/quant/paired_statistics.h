#pragma once
#include "quant/weight_rounding.h"

namespace kaon {

/// Goes through a network from front to back: what the nodes to come read of those before is kept for all data, so that
/// nothing is computed from the start each time.
class NetworkWalk {
 public:
  /// Kept values may take so much; where they would take more, what was kept before stays and more is computed again.
  static constexpr int64_t kMostBytes = 128 << 20;

  NetworkWalk(const Dataset& data, int64_t batch, int64_t most_bytes = kMostBytes);

  /// Makes the values that nodes of `model` from `position` on read of what is before, from those it has. `model` may
  /// differ from the last one in what comes after the position of that call.
  void go_to(const Model& model, int64_t position);
  /// What is kept of the batch that begins with sample `first`.
  TensorMap kept(int64_t first) const;

 private:
  const Dataset& data_;
  int64_t batch_;
  int64_t most_bytes_;
  std::vector<TensorMap> kept_;  ///< of every batch; none: the data themselves
};

/// What weights multiply in the network as it is quantized so far, beside what they multiply in the float model. To be
/// asked for portion after portion, from front to back.
class PairedStatistics {
 public:
  explicit PairedStatistics(const AlgorithmInput& input);

  /// Of the first `count` of `weights`, which are all that is not rounded yet; those of the layers that share one are
  /// summed.
  std::vector<std::shared_ptr<const InputStatistics>> of(std::span<const GridWeight> weights, size_t count);

 private:
  const AlgorithmInput& input_;
  int64_t batch_;
  NetworkWalk exact_;
  NetworkWalk rounded_;
};

}  // namespace kaon
