#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "quant/quantizer.h"

namespace kaon {

struct ExportOptions {
  /// Store the quantized values of weights as floats where ONNX has no way to say the format; their activations stay
  /// float in the file.
  bool fake = false;
};

struct Exported {
  Model model;
  std::vector<std::string> notes;  ///< what the reader of the file should know, one line each
};

/// Whether ONNX Runtime runs a file that stores codes of this format.
bool onnx_has(const Format& format);

/// `quantized` as plain ONNX that other runtimes load: codes in their own types behind DequantizeLinear, QuantizeLinear
/// and DequantizeLinear on activations, at the lowest opset that has the types. Throws Unsupported, naming layer and
/// format and what to use instead, for what ONNX Runtime cannot run, unless `fake` is set.
Exported export_onnx(const QuantizedModel& quantized, const ExportOptions& options = {});

/// Every quantizer with its format, scales, zero points and layout: the sidecar written beside the file.
nlohmann::ordered_json sidecar_json(const QuantizedModel& quantized, const Exported& exported);

}  // namespace kaon
