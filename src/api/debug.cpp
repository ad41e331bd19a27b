#include "api/debug.h"

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "api/load_model.h"
#include "base/error.h"
#include "base/memory_usage.h"
#include "base/stopwatch.h"
#include "data/dataset.h"
#include "quant/describe.h"

namespace kaon {
namespace {

bool switch_in_environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == 0 || std::string_view(value) == "0") return false;
  if (std::string_view(value) != "1") {
    fail(ErrorCode::InvalidConfig, name, "is '{}'; 1 switches it on, 0 off", value);
  }
  return true;
}

std::string path_in_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// `data`, with `input` in the place of what is debugged on.
DataOptions with_input(DataOptions data, const std::filesystem::path& input) {
  if (!input.empty()) data.data = input;
  return data;
}

/// `data`, with the calibration data in the place of what is debugged on where there is none.
DataOptions or_calibration(DataOptions data) {
  if (data.data.empty()) {
    data.data = data.calib;
    data.limit = data.calib_limit;
  }
  return data;
}

DebugReport run_debug(const QuantizedModel& quantized, const Dataset* data, const DebugOptions& options,
                      const std::filesystem::path& model, const std::string& scheme) {
  DebugReport report = data == nullptr ? debug(quantized, options) : debug(quantized, *data, options);
  report.model = model.filename().string();
  report.scheme = scheme;
  return report;
}

void throw_if_stopped(const DebugReport& report, bool nan, const std::filesystem::path& folder) {
  if (!nan || !report.nan) return;
  fail(ErrorCode::Numeric, report.model, "{}; what was seen until then is in {}", describe(*report.nan),
       folder.string());
}

}  // namespace

std::string describe(const NonFiniteAt& at) {
  std::string place = fmt::format("{} {}: {} at element {} (index {})", at.layer, name_of(at.slot), at.value,
                                  to_string(at.element), at.index);
  if (at.batch >= 0) place += fmt::format(" of batch {}", at.batch);
  return place + (at.float_run ? ", in the float model already" : ", in the quantized model alone");
}

DebugResult debug_file(const DebugCall& call) {
  const Stopwatch watch;
  if (call.output.empty()) fail(ErrorCode::InvalidConfig, "", "nowhere to write to: give -o DIR");
  check_debug_folder(call.output, call.force);
  DebugResult result;
  const Config config = config_of(call.quant);
  result.calib_unused = !call.data.calib.empty() && !needs_calibration(config);
  Model model = load_model(call.model);
  for (const std::string& note : {make_inputs_constant(model), note_on_halves(model)}) {
    if (!note.empty()) result.notes.push_back(note);
  }
  DataOptions samples = with_input(call.data, call.input);
  if (samples.data.empty() && !samples.calib.empty() && !result.calib_unused) {
    samples = or_calibration(samples);
    result.notes.emplace_back("no --data: the samples of --calib are looked at");
  }
  samples.tokenizer = tokenizer_of(call.model);
  const std::unique_ptr<Dataset> data = open_data(samples, model.graph);
  const QuantizedModel quantized = quantize_for(call.model, model, config, samples, *call.progress, true);
  result.description = describe(quantized);
  DebugOptions options;
  options.act_hist = call.act_hist;
  options.nan = call.nan;
  options.layers = call.layers;
  options.batch = call.data.batch;
  options.progress = call.progress;
  result.report = run_debug(quantized, data.get(), options, call.model, config_name(call.quant));
  result.pictures = write_debug_folder(result.report, call.output, call.force, *call.progress);
  throw_if_stopped(result.report, call.nan, call.output);
  result.seconds = watch.seconds();
  result.peak_mb = peak_memory_mb();
  return result;
}

std::optional<DebugEnvironment> debug_environment() {
  DebugEnvironment asked;
  asked.folder = path_in_environment("KAON_DEBUG");
  if (asked.folder.empty()) return std::nullopt;
  asked.input = path_in_environment("KAON_DEBUG_INPUT");
  asked.act_hist = switch_in_environment("KAON_DEBUG_ACT_HIST");
  asked.nan = switch_in_environment("KAON_DEBUG_NAN");
  check_debug_folder(asked.folder, false);
  return asked;
}

void debug_as_asked(const DebugEnvironment& asked, const std::filesystem::path& model, const std::string& scheme,
                    const QuantizedModel& quantized, const DataOptions& data, Progress& progress) {
  const std::unique_ptr<Dataset> samples =
      open_data(with_input(or_calibration(data), asked.input), quantized.model.graph);
  DebugOptions options;
  options.act_hist = asked.act_hist;
  options.nan = asked.nan;
  options.batch = data.batch;
  options.progress = &progress;
  const DebugReport report = run_debug(quantized, samples.get(), options, model, scheme);
  write_debug_folder(report, asked.folder, false, progress);
  throw_if_stopped(report, asked.nan, asked.folder);
}

}  // namespace kaon
