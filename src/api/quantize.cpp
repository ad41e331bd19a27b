#include "api/quantize.h"

#include <nlohmann/json.hpp>

#include "api/debug.h"
#include "api/load_model.h"
#include "api/output_file.h"
#include "api/quantize_folder.h"
#include "api/quantize_gguf.h"
#include "base/atomic_file.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/mapped_file.h"
#include "base/memory_usage.h"
#include "base/sha256.h"
#include "base/stopwatch.h"
#include "engine/engine.h"
#include "export/export.h"
#include "io/onnx/onnx.h"
#include "quant/describe.h"
#include "quant/simulate.h"

namespace kaon {
namespace {

void measure(const QuantizedModel& quantized, const QuantizeCall& call, QuantizeReport& report) {
  const std::unique_ptr<Dataset> data = open_data(call.data, quantized.model.graph);
  if (data == nullptr) return;
  EvalSettings settings;
  settings.batch = call.data.batch;
  settings.progress = call.progress;
  Engine exact(quantized.original);
  Engine simulated(simulate(quantized));
  EvalResult result = evaluate(simulated, *data, usual_metrics(*data, true), &exact, settings);
  report.metrics_before = std::move(result.reference_metrics);
  report.metrics_after = std::move(result.metrics);
  report.outputs = std::move(result.outputs);
}

/// Which readers of the file must be newer than those of the model.
void note_versions(const Model& before, const Model& after, std::vector<std::string>& notes) {
  for (const auto& [domain, version] : after.opsets) {
    const auto was = before.opsets.find(domain);
    const std::string name = domain.empty() ? "opset" : "opset of " + domain;
    if (was == before.opsets.end()) {
      notes.push_back(fmt::format("the file uses {} {}, which the model does not", name, version));
    } else if (was->second != version) {
      notes.push_back(fmt::format("the file's {} is {}, the model's {}", name, version, was->second));
    }
  }
  if (before.ir_version != after.ir_version) {
    notes.push_back(fmt::format("the file's IR version is {}, the model's {}", after.ir_version, before.ir_version));
  }
}

/// One line for each key, and for each element of an array.
std::string in_lines(const nlohmann::ordered_json& document) {
  std::string text = "{";
  for (const auto& [key, value] : document.items()) {
    text += fmt::format("{}\n\"{}\": ", text.size() > 1 ? "," : "", key);
    if (!value.is_array() || value.empty()) {
      text += json_text(value);
      continue;
    }
    for (size_t i = 0; i < value.size(); ++i) text += (i == 0 ? "[\n  " : ",\n  ") + json_text(value[i]);
    text += "]";
  }
  return text + "\n}\n";
}

/// The model and what describes it, both or none; returns the model's bytes. The sidecar says which file it belongs to.
int64_t write_with_sidecar(const QuantizedModel& quantized, const Exported& exported,
                           const std::filesystem::path& path) {
  std::vector<std::unique_ptr<AtomicFile>> files = draft_onnx(exported.model, path);
  int64_t bytes = 0;
  for (const auto& file : files) bytes += file->bytes();
  AtomicFile& model = *files.back();
  model.finish();
  if (model.is_file()) {
    nlohmann::ordered_json document = sidecar_json(quantized, exported);
    document["model"] = {{"file", path.filename().string()},
                         {"bytes", model.bytes()},
                         {"sha256", sha256(MappedFile::open(model.temporary())->bytes())}};
    files.push_back(std::make_unique<AtomicFile>(path.string() + ".json"));
    files.back()->write(in_lines(document));
  }
  commit_together(files);
  return bytes;
}

}  // namespace

QuantizeReport quantize_file(const QuantizeCall& asked_for) {
  QuantizeCall call = asked_for;
  call.data.tokenizer = tokenizer_of(call.model);
  const Stopwatch watch;
  if (call.output.empty()) fail(ErrorCode::InvalidConfig, "", "nowhere to write to: give -o OUT");
  const std::string format = call.format.empty() ? format_of_output(call.output) : call.format;
  if (call.resume && (!is_language_model(call.model) || format == "gguf" || format == "onnx")) {
    fail(ErrorCode::InvalidConfig, "--resume", "is for language models that become folders");
  }
  if (is_language_model(call.model) && format == "gguf") {
    if (!call.quant.config.empty() || !call.quant.algorithms.empty()) {
      fail(ErrorCode::Unsupported, "--format", "a GGUF file is rounded by its own rules: no --config and --algorithms");
    }
    check_output(call.output, {call.model, call.data.data, call.data.calib}, call.force);
    return quantize_gguf(call.model, call.output, call.quant.scheme, call.quant.exclude, call.data,
                         {.format = format, .progress = call.progress});
  }
  if (is_language_model(call.model) && format != "onnx") {
    QuantizeReport report = quantize_folder(call.model, call.output, config_of(call.quant), call.data,
                                            {format, call.memory_mb, call.resume, call.progress});
    report.scheme = config_name(call.quant);
    return report;
  }
  if (format != "onnx" && !call.format.empty()) {
    fail(ErrorCode::InvalidConfig, "--format", "'{}' is for language models; {} is none", format, call.model.string());
  }
  check_output(call.output, {call.model, call.data.data, call.data.calib, call.quant.config}, call.force);
  if (!is_device(call.output)) {
    const std::filesystem::path beside = call.output.string() + ".json";
    check_output(beside, {call.model, call.data.data, call.data.calib, call.quant.config}, call.force);
  }
  const std::optional<DebugEnvironment> asked = debug_environment();
  QuantizeReport report;
  const Config config = config_of(call.quant);
  report.scheme = config_name(call.quant);
  report.calib_unused = !call.data.calib.empty() && !needs_calibration(config);
  Model model = load_model(call.model, &report.bytes_before);
  for (const std::string& note : {make_inputs_constant(model), note_on_halves(model)}) {
    if (!note.empty()) report.notes.push_back(note);
  }
  const QuantizedModel quantized = quantize_for(call.model, model, config, call.data, *call.progress);
  if (asked) debug_as_asked(*asked, call.model, report.scheme, quantized, call.data, *call.progress);
  ExportOptions options;
  options.fake = call.fake;
  const Exported exported = export_onnx(quantized, options);
  measure(quantized, call, report);

  make_folder_of(call.output);
  report.bytes_after = write_with_sidecar(quantized, exported, call.output);
  report.layers = quantized.quantized_layers();
  report.quantizers = std::ssize(quantized.quantizers);
  report.calibration = quantized.calibration;
  report.skipped = quantized.skipped;
  report.algorithms = quantized.algorithms;
  note_versions(model, exported.model, report.notes);
  report.notes.insert(report.notes.end(), exported.notes.begin(), exported.notes.end());
  report.description = describe(quantized);
  report.seconds = watch.seconds();
  report.peak_mb = peak_memory_mb();
  return report;
}

nlohmann::ordered_json to_json(const QuantizeReport& report) {
  const auto metrics = [](const Metrics& values) {
    return values.empty() ? nlohmann::ordered_json(nullptr) : metrics_json(values);
  };
  auto skipped = nlohmann::ordered_json::array();
  for (const Skipped& skip : report.skipped) skipped.push_back(to_json(skip));
  return {{"scheme", report.scheme},
          {"layers", std::ssize(report.layers)},
          {"quantizers", report.quantizers},
          {"bytes_before", report.bytes_before},
          {"bytes_after", report.bytes_after},
          {"calibration", {{"samples", report.calibration.samples}, {"seconds", report.calibration.seconds}}},
          {"metrics_before", metrics(report.metrics_before)},
          {"metrics_after", metrics(report.metrics_after)},
          {"outputs", outputs_json(report.outputs)},
          {"seconds", report.seconds},
          {"peak_mb", report.peak_mb},
          {"skipped", std::move(skipped)},
          {"algorithms", algorithms_json(report.algorithms)},
          {"notes", report.notes}};
}

}  // namespace kaon
