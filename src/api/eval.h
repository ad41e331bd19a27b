#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "api/quant_options.h"
#include "eval/evaluate.h"

namespace kaon {

struct EvalOptions {
  std::filesystem::path model;
  QuantOptions
      quant;  ///< with a scheme or config, the quantized model is evaluated, and the float one is its reference
  DataOptions data;
  std::vector<std::string> metrics;  ///< empty: usual_metrics()
  std::vector<std::string> outputs;  ///< of the model, those to look at; empty: all
  std::filesystem::path reference;   ///< another model to compare with
  int64_t memory_mb = 0;  ///< above 0: a language model goes block by block, its hidden states beyond this in a file
  Progress* progress = &no_progress();
};

struct EvalReport {
  int64_t samples = 0;
  Metrics metrics;  ///< each of the output where it is worst
  std::vector<OutputMetrics> outputs;
  double seconds = 0;  ///< of the evaluation alone
  double peak_mb = 0;
  std::vector<Skipped> skipped;
  std::vector<AlgorithmReport> algorithms;
  std::vector<std::string> notes;  ///< about the model
  std::string description;         ///< the quantized model, layer by layer
};

/// What is measured where nobody said: top1 and loss with labels, sqnr_db and agreement with a reference.
std::vector<std::string> usual_metrics(const Dataset& data, bool has_reference);

EvalReport eval_model(const EvalOptions& options);
/// What eval_model does where `memory_mb` is given: weights and plans of one block at a time, whatever the number.
EvalReport eval_by_blocks(const EvalOptions& options);

nlohmann::ordered_json to_json(const EvalReport& report);
/// Numbers that are not finite become null.
nlohmann::ordered_json metrics_json(const Metrics& metrics);
/// `[{name, metrics}]`.
nlohmann::ordered_json outputs_json(const std::vector<OutputMetrics>& outputs);

}  // namespace kaon
