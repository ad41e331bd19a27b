#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace kaon {

/// What passes may need from outside.
struct PassContext {
  /// Runs one node on constant inputs (undefined where omitted) and gives a tensor for each output that has a name, or
  /// nothing where it cannot. The engine supplies it; without it no constants are folded.
  std::function<std::vector<Tensor>(const Node&, const Model&, std::span<const Tensor>)> evaluate;
  /// upgrade_opset brings the model to this version of ONNX's operators; 0 leaves it where it is.
  int64_t target_opset = 0;
};

/// A named rewriting of a model that does not change what it computes. `run` returns how many places it changed.
struct Pass {
  std::string name;
  int64_t (*run)(Model& model, const PassContext& context);
};

/// In the order they run.
const std::vector<Pass>& standard_passes();

struct PassOptions {
  std::vector<std::string> disabled;  ///< names of passes to leave out; an unknown one is an error
  bool verify_after = true;           ///< check the model after each pass
};

struct PassReport {
  std::string name;
  double seconds = 0;
  int64_t changes = 0;
};

/// Runs standard_passes() on `model`; one report for each that ran.
std::vector<PassReport> run_passes(Model& model, const PassContext& context = {}, const PassOptions& options = {});

}  // namespace kaon
