#include "api/debug.h"

#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/memory_usage.h"
#include "data/dataset.h"
#include "io/onnx/onnx.h"

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

/// The data to debug on, or null.
std::unique_ptr<Dataset> open_debug_data(const std::filesystem::path& input, const DataOptions& data,
                                         const Graph& graph) {
  DataOptions options = data;
  if (!input.empty()) options.data = input;
  return open_data(options, graph);
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
  const auto start = std::chrono::steady_clock::now();
  if (call.output.empty()) fail(ErrorCode::InvalidConfig, "", "nowhere to write to: give -o DIR");
  check_debug_folder(call.output, call.force);
  DebugResult result;
  const Config config = config_of(call.quant);
  result.calib_unused = !call.data.calib.empty() && !needs_calibration(config);
  const Model model = read_onnx(call.model);
  const std::unique_ptr<Dataset> data = open_debug_data(call.input, call.data, model.graph);
  DataOptions calibration = call.data;
  if (!call.input.empty()) calibration.data = call.input;
  const QuantizedModel quantized = quantize_for(call.model, model, config, calibration, *call.progress);
  DebugOptions options;
  options.act_hist = call.act_hist;
  options.nan = call.nan;
  options.layers = call.layers;
  options.batch = call.data.batch;
  options.progress = call.progress;
  result.report = run_debug(quantized, data.get(), options, call.model, config_name(call.quant));
  result.pictures = write_debug_folder(result.report, call.output, call.force, *call.progress);
  throw_if_stopped(result.report, call.nan, call.output);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
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
  DataOptions there = data;
  if (there.data.empty()) {
    there.data = data.calib;
    there.limit = data.calib_limit;
  }
  const std::unique_ptr<Dataset> samples = open_debug_data(asked.input, there, quantized.model.graph);
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
