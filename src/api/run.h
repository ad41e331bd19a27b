#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "graph/tensor.h"

namespace kaon {

struct RunOptions {
  std::filesystem::path model;
  std::filesystem::path input;   ///< .npz or test-data folder
  std::filesystem::path output;  ///< .npz that the outputs are written to; empty: nowhere
  std::string dump;              ///< glob: the values it matches are written to `output` too; empty: none
  int64_t repeat = 1;
};

/// An output beside what the test data expect.
struct OutputError {
  double max_abs = 0;   ///< Inf where type, shape or the places of NaN and Inf differ
  double max_rel = 0;   ///< largest |y - expected| / max(|expected|, 1e-12)
  bool passed = false;  ///< by ONNX's own rule: |y - expected| <= 1e-7 + 1e-3 |expected|; types of 8 bits or less, and
                        ///< integers, must be equal
};

struct RunOutput {
  std::string name;
  std::string type;
  Shape shape;
  std::optional<OutputError> error;  ///< with test data
};

struct RunResult {
  std::vector<RunOutput> outputs;
  double seconds = 0;               ///< median of the runs, after one that makes the plan
  double peak_mb = 0;               ///< largest resident set
  double startup_mb = 0;            ///< the same before the model was read
  std::optional<bool> passed;       ///< with test data
  std::vector<std::string> dumped;  ///< values written beside the outputs
  std::vector<std::string> unused;  ///< arrays of the input file that the model does not take
};

/// Runs a model on one set of inputs.
RunResult run_model(const RunOptions& options);

/// Numbers that are not finite become null.
nlohmann::ordered_json to_json(const RunResult& result);

}  // namespace kaon
