#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "graph/dataset.h"
#include "quant/quantizer.h"
#include "quant/schemes.h"
#include "text/tokenizer.h"

namespace kaon {

/// What the verbs that quantize are told about it.
struct QuantOptions {
  std::string scheme;            ///< a preset …
  std::filesystem::path config;  ///< … or a file, or a file on top of a preset
  std::string observer;          ///< "" = as the config says; "percentile" or "percentile:percentile=99.9"
  std::vector<std::string> exclude;
  std::vector<std::string> algorithms;  ///< behind those of the config; "gptq" or "gptq:damping=0.1:act_order=1"
  std::string layout;                   ///< "" = as the config says; "u8s8", "s8s8", "u8u8"
};

/// What they are told about data.
struct DataOptions {
  std::filesystem::path data;   ///< to evaluate on
  std::filesystem::path calib;  ///< to calibrate on; where empty, `data` serves
  int64_t limit = 0;            ///< samples of `data`; 0 = all
  int64_t calib_limit = 0;      ///< samples of `calib`; 0 = all
  int64_t batch = 8;
  std::function<TokenizerPtr()> tokenizer;  ///< of the model, for text; empty where it has none
};

bool asks_to_quantize(const QuantOptions& options);

/// Throws where the options name a scheme, layout, observer or algorithm that does not exist; reads no file.
void check_names(const QuantOptions& options);

/// The config that the options ask for. Throws InvalidConfig where they name none, or the file a scheme of its own on
/// top of another.
Config config_of(const QuantOptions& options);

/// A name for the config in tables and JSON: its scheme, the file's name, or both: "w8a8c+mixed".
std::string config_name(const QuantOptions& options);

/// `[{name, changed, seconds, notes}]`
nlohmann::ordered_json algorithms_json(const std::vector<AlgorithmReport>& reports);

/// Makes constants of those inputs of `model` that have a value in the file: returns a line that says so, or "".
std::string make_inputs_constant(Model& model);
/// A line that says that `model` computes in float32 from here on, or "".
std::string note_on_halves(const Model& model);

/// Null where no `data` is named.
std::unique_ptr<Dataset> open_data(const DataOptions& options, const Graph& graph);
/// The samples to calibrate on: `calib`, else `data`, else null.
std::unique_ptr<Dataset> open_calibration(const DataOptions& options, const Graph& graph);

/// Reads nothing that `config` does not need: calibrates only where it asks for it. Of a language model, the layers of
/// its blocks are quantized (for_language_model()). Errors name `path`.
QuantizedModel quantize_for(const std::filesystem::path& path, const Model& model, const Config& config,
                            const DataOptions& data, Progress& progress, bool allow_non_finite = false);

}  // namespace kaon
