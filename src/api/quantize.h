#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "api/eval.h"
#include "api/quant_options.h"

namespace kaon {

struct QuantizeCall {
  std::filesystem::path model;
  std::filesystem::path output;  ///< the .onnx to write; its sidecar is named like it with ".json" behind
  QuantOptions quant;
  DataOptions data;
  bool fake = false;      ///< store what ONNX has no type for as float
  bool force = false;     ///< the output may be the model itself
  std::string format;     ///< of a language model's output; "" = format_of_output()
  int64_t memory_mb = 0;  ///< above 0: hidden states of a language model beyond this go to a file
  bool resume = false;    ///< of a language model's folder: go on where a run that was killed stopped
  Progress* progress = &no_progress();
};

struct QuantizeReport {
  std::string scheme;
  std::vector<std::string> layers;  ///< those with at least one quantizer; JSON gives their number
  int64_t quantizers = 0;
  int64_t bytes_before = 0;
  int64_t bytes_after = 0;
  CalibrationReport calibration;
  bool calib_unused = false;  ///< calibration data was given, but the scheme learns nothing from data
  Metrics metrics_before;     ///< empty without `data`
  Metrics metrics_after;
  std::vector<OutputMetrics> outputs;  ///< metrics_after of each output of the model
  double seconds = 0;
  double peak_mb = 0;
  std::vector<Skipped> skipped;
  std::vector<AlgorithmReport> algorithms;
  std::vector<std::string> notes;  ///< about the file
  std::string description;         ///< the quantized model, layer by layer
};

/// Quantizes a file into a file. The output appears whole or not at all.
QuantizeReport quantize_file(const QuantizeCall& call);

nlohmann::ordered_json to_json(const QuantizeReport& report);

}  // namespace kaon
