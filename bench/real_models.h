#pragma once
#include <filesystem>
#include <vector>

#include "graph/tensor.h"

namespace kaon::bench {

/// A model of KAON_MODELS that is timed.
struct RealModel {
  const char* name;
  const char* file;
  Shape shape;  ///< of the input, for one sample
  std::vector<int64_t> batches;
  int64_t tokens = 0;  ///< the input holds integers below this; 0: numbers of a normal distribution
};

const std::vector<RealModel>& real_models();

std::filesystem::path path_of(const RealModel& model);

/// The same at every call: integers below `tokens`, or numbers of a normal distribution.
Tensor random_input(Shape sample, int64_t batch, int64_t tokens);

}  // namespace kaon::bench
