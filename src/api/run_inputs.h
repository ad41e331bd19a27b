#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace kaon {

/// What a model is fed in one run.
struct RunInputs {
  TensorMap values;
  std::vector<std::string> unused;  ///< arrays of the file that the model does not take
  std::vector<Tensor> expected;     ///< a test-data folder's outputs, in the graph's order; else none
};

/// Reads inputs for `graph` from an .npz with arrays of their names, or from the input_*.pb and output_*.pb of an ONNX
/// test-data folder. An empty path will do for a model without inputs.
/// Throws InvalidInput, saying what the model needs, where an input is missing.
RunInputs read_run_inputs(const std::filesystem::path& path, const Graph& graph);

}  // namespace kaon
