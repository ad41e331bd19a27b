#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "api/quant_options.h"
#include "debug/debug_model.h"
#include "report/debug_folder.h"
#include "report/debug_tables.h"

namespace kaon {

struct DebugCall {
  std::filesystem::path model;
  std::filesystem::path output;  ///< the folder to write
  QuantOptions quant;
  DataOptions data;
  std::filesystem::path input;  ///< .pt or .npz to debug on instead of data.data
  bool act_hist = false;
  bool nan = false;
  std::string layers = "*";
  bool force = false;  ///< write into a folder that is not empty
  Progress* progress = &no_progress();
};

struct DebugResult {
  DebugReport report;
  int64_t pictures = 0;
  bool calib_unused = false;       ///< calibration data was given, but the scheme learns nothing from data
  std::vector<std::string> notes;  ///< about the model
  std::string description;         ///< the quantized model, layer by layer
  double seconds = 0;
  double peak_mb = 0;
};

/// Quantizes a model and writes what that did to it into a folder, which appears whole or not at all.
DebugResult debug_file(const DebugCall& call);

/// "conv2 output: NaN at element [0, 3, 1] …", for messages.
std::string describe(const NonFiniteAt& at);

/// What the environment asks for: KAON_DEBUG=DIR, KAON_DEBUG_INPUT=FILE, KAON_DEBUG_ACT_HIST=1, KAON_DEBUG_NAN=1.
struct DebugEnvironment {
  std::filesystem::path folder;
  std::filesystem::path input;
  bool act_hist = false;
  bool nan = false;
};

/// Nothing unless KAON_DEBUG is set. Throws InvalidConfig on a switch that is neither 0 nor 1.
std::optional<DebugEnvironment> debug_environment();

/// Debugs a model that was just quantized as the environment asks, on KAON_DEBUG_INPUT, else `data.data`, else
/// `data.calib`. Throws Numeric at the first NaN or Inf where KAON_DEBUG_NAN is set.
void debug_as_asked(const DebugEnvironment& asked, const std::filesystem::path& model, const std::string& scheme,
                    const QuantizedModel& quantized, const DataOptions& data, Progress& progress);

}  // namespace kaon
