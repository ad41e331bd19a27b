#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "api/quant_options.h"
#include "debug/debug_model.h"

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
  bool calib_unused = false;  ///< calibration data was given, but the scheme learns nothing from data
  std::string note;           ///< about the model, or ""
  std::string description;    ///< the quantized model, layer by layer
  double seconds = 0;
  double peak_mb = 0;
};

/// Quantizes a model and writes what that did to it into a folder, which appears whole or not at all.
DebugResult debug_file(const DebugCall& call);

/// summary.json.
nlohmann::ordered_json to_json(const DebugReport& report);

/// "conv2 output: NaN at element [0, 3, 1] …", for messages.
std::string describe(const NonFiniteAt& at);

/// Throws InvalidInput where `folder` exists and is not an empty folder, unless `force` allows that, and Io where it
/// could not be written.
void check_debug_folder(const std::filesystem::path& folder, bool force);

/// Writes the pictures, tables and the page of `report`; returns the number of pictures. They are drawn in a
/// folder of their own and moved at the end. With `force`, files of an earlier report are replaced or removed, and no
/// others (AtomicFolder).
int64_t write_debug_folder(const DebugReport& report, const std::filesystem::path& folder, bool force,
                           Progress& progress = no_progress());

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
