#include "api/eval.h"

#include <memory>
#include <nlohmann/json.hpp>

#include "api/load_model.h"
#include "base/error.h"
#include "base/memory_usage.h"
#include "data/dataset.h"
#include "engine/engine.h"
#include "graph/compute_in_float32.h"
#include "quant/describe.h"
#include "quant/simulate.h"

namespace kaon {

std::vector<std::string> usual_metrics(const Dataset& data, bool has_reference) {
  std::vector<std::string> metrics;
  if (data.has_labels()) metrics = {"top1", "loss"};
  if (has_reference) metrics.insert(metrics.end(), {"sqnr_db", "agreement"});
  if (metrics.empty()) {
    fail(ErrorCode::InvalidConfig, "", "nothing to measure: the data has no labels; give --reference or a scheme");
  }
  return metrics;
}

EvalReport eval_model(const EvalOptions& asked) {
  if (asked.data.data.empty()) fail(ErrorCode::InvalidConfig, "", "nothing to evaluate on: give --data");
  EvalOptions options = asked;
  options.data.tokenizer = tokenizer_of(options.model);
  if (options.memory_mb < 0)
    fail(ErrorCode::InvalidInput, "--memory", "is {}; MiB above 0 are needed", options.memory_mb);
  if (options.memory_mb > 0) {
    if (!is_language_model(options.model)) {
      fail(ErrorCode::InvalidInput, "--memory", "{} is no language model", options.model.string());
    }
    return eval_by_blocks(options);
  }
  Model model = load_model(options.model);
  EvalReport report;
  if (const std::string note = note_on_halves(model); !note.empty()) report.notes.push_back(note);
  compute_in_float32(model);
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Engine> reference;
  if (!options.reference.empty()) reference = std::make_unique<Engine>(load_model(options.reference));
  if (asks_to_quantize(options.quant)) {
    const Config config = config_of(options.quant);
    if (const std::string note = make_inputs_constant(model); !note.empty()) report.notes.push_back(note);
    const QuantizedModel simulated = quantize_for(options.model, model, config, options.data, *options.progress);
    report.skipped = simulated.skipped;
    report.algorithms = simulated.algorithms;
    report.description = describe(simulated);
    if (reference == nullptr) reference = std::make_unique<Engine>(simulated.original);
    engine = std::make_unique<Engine>(simulate(simulated));
  } else {
    engine = std::make_unique<Engine>(model);
  }
  const std::unique_ptr<Dataset> data = open_data(options.data, model.graph);
  std::vector<std::string> metrics = options.metrics;
  if (metrics.empty()) metrics = usual_metrics(*data, reference != nullptr);
  bool compared = false;
  for (const std::string& metric : metrics) compared = compared || needs_reference(metric);
  EvalSettings settings;
  settings.batch = options.data.batch;
  settings.outputs = options.outputs;
  settings.progress = options.progress;
  const EvalResult result = evaluate(*engine, *data, metrics, compared ? reference.get() : nullptr, settings);
  report.samples = result.samples;
  report.metrics = result.metrics;
  report.outputs = result.outputs;
  report.seconds = result.seconds;
  report.peak_mb = peak_memory_mb();
  return report;
}

nlohmann::ordered_json metrics_json(const Metrics& metrics) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [name, value] : metrics) json[name] = value;
  return json;
}

nlohmann::ordered_json outputs_json(const std::vector<OutputMetrics>& outputs) {
  auto rows = nlohmann::ordered_json::array();
  for (const OutputMetrics& output : outputs) {
    rows.push_back({{"name", output.name}, {"metrics", metrics_json(output.metrics)}});
  }
  return rows;
}

nlohmann::ordered_json to_json(const EvalReport& report) {
  return {{"samples", report.samples},
          {"metrics", metrics_json(report.metrics)},
          {"outputs", outputs_json(report.outputs)},
          {"seconds", report.seconds},
          {"peak_mb", report.peak_mb},
          {"algorithms", algorithms_json(report.algorithms)}};
}

}  // namespace kaon
