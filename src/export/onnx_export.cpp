#include "export/onnx_export.h"

#include "base/error.h"
#include "graph/passes/passes.h"
#include "graph/upgrade_opset.h"
#include "graph/verify.h"

namespace kaon {

namespace onnx_export {

void Exporter::note(std::string line) {
  if (std::ranges::find(notes, line) == notes.end()) notes.push_back(std::move(line));
}

void Exporter::refuse(const Quantizer& quantizer, const std::string& why) const {
  const std::string instead = quantizer.is_activation() ? "use static or dynamic uint8 (w8a8, w8a8d) or fp8"
                                                        : "use int8 or int4 in groups (w8c, w4g32) or fp8";
  fail(ErrorCode::Unsupported, quantizer.label(),
       "{} cannot be exported: {}; {}, or --fake to store its weights as floats", quantizer.spec.format, why, instead);
}

namespace {

void export_activation(Exporter& exporter, const Quantizer& quantizer) {
  const std::string obstacle = activation_obstacle(quantizer);
  if (!obstacle.empty()) {
    if (!exporter.options.fake) exporter.refuse(quantizer, obstacle);
    exporter.note(fmt::format("{}: stays float in the file, not {}", quantizer.label(), quantizer.spec.format));
    return;
  }
  if (quantizer.dynamic && !is_cast(format(quantizer.spec.format))) {
    export_dynamic(exporter, quantizer);
  } else {
    export_static(exporter, quantizer);
  }
}

/// What a user of ONNX Runtime should know about its fast paths.
void note_runtime(Exporter& exporter) {
  bool eight_bit_activations = false;
  bool integer_products = false;
  bool shared_weights = false;
  for (const Quantizer& quantizer : exporter.quantized.quantizers) {
    if (!quantizer.enabled) continue;
    const Format& own = format(quantizer.spec.format);
    if (own.kind != FormatKind::Integer) continue;
    if (quantizer.is_activation() && own.bits == 8) eight_bit_activations = true;
    if (quantizer.kind != Slot::Weight) continue;
    shared_weights |= quantizer.readers.size() > 1;
    for (const Reader& reader : quantizer.readers) {
      const std::string& op = exporter.node(reader).op;
      integer_products |= op == "MatMul" || op == "Gemm";
    }
  }
  if (eight_bit_activations) {
    exporter.note(fmt::format(
        "ONNX Runtime on x64 without VNNI saturates uint8 × int8 products unless session.x64quantprecision is 1{}",
        shared_weights ? ", which it refuses here, where layers share a weight" : ""));
  } else if (integer_products) {
    exporter.note(
        "ONNX Runtime rounds the inputs of MatMulNBits to 8 bits unless session.qdq_matmulnbits_accuracy_level is 1");
  }
}

}  // namespace

}  // namespace onnx_export

Exported export_onnx(const QuantizedModel& given, const ExportOptions& options) {
  QuantizedModel quantized = given;
  quantized.model = rounded_model(given);
  onnx_export::Exporter exporter(quantized, options);
  for (const Quantizer& quantizer : quantized.quantizers) {
    if (quantizer.enabled && !quantizer.calibrated()) {
      fail(ErrorCode::InvalidInput, quantizer.label(), "this quantizer was not calibrated");
    }
  }
  onnx_export::plan_integer_products(exporter);
  for (const Quantizer& quantizer : quantized.quantizers) {
    if (quantizer.enabled && !quantizer.is_activation()) export_weight(exporter, quantizer);
  }
  // Those that take a value's name come first: the others read what they make.
  for (const bool whole : {true, false}) {
    for (const Quantizer& quantizer : quantized.quantizers) {
      if (!quantizer.enabled || !quantizer.is_activation() || quantizer.readers.empty() != whole) continue;
      onnx_export::export_activation(exporter, quantizer);
    }
  }
  write_integer_products(exporter);
  exporter.edit.finish();
  onnx_export::note_runtime(exporter);
  Model& model = exporter.model;
  passes::remove_dead_nodes(model, {});
  upgrade_opset(model, exporter.opset);
  verify(model);
  model.producer_name = "kaon";
  model.producer_version.clear();
  std::erase_if(model.metadata, [](const auto& entry) { return entry.first == "kaon.scheme"; });
  const std::string& scheme = quantized.config.scheme;
  model.metadata.emplace_back("kaon.scheme", scheme.empty() ? "custom" : scheme);
  return {std::move(model), std::move(exporter.notes)};
}

}  // namespace kaon
