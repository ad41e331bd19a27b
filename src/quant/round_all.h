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

/// Which weights' data leave G singular, so that only damping tells codes apart. May be told by several threads.
class DampingNotes {
 public:
  void add(const GroupRows& rows, const GptqFactor& factor);
  /// One line, or none.
  void say(const AlgorithmInput& input) const;

 private:
  struct Found {
    int64_t groups = 0;  ///< of the weight
    int64_t empty = 0;   ///< groups that read nothing but zeros
    int64_t cols = 0;
    int64_t seen = 0;
    double more = 0;  ///< damping beyond what was asked for
  };
  std::map<std::string, Found> found_;
  std::mutex mutex_;
};

Option sequential_option();

}  // namespace kaon
