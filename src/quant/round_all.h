#pragma once
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "quant/weight_rounding.h"

namespace kaon {

/// Gets a weight, the rows of one of its groups, and its codes as they are so far.
using RoundRows = std::function<void(GridWeight&, const GroupRows&, FloatMatrix& codes)>;

/// Rounds all weights on a grid, with the algorithm's option `sequential`. Without it, where bias_correction follows in
/// the config and the layers have biases, the mean of the error is left to it: inputs count without their means.
void round_all(const AlgorithmInput& input, const RoundRows& round);

/// Which weights had too few data to be rounded with the damping that was asked for. May be told by several threads.
class DampingNotes {
 public:
  void add(const GridWeight& weight, const GptqFactor& factor);
  void say(const AlgorithmInput& input) const;

 private:
  std::map<std::string, double> most_;
  std::mutex mutex_;
};

Option sequential_option();

}  // namespace kaon
