#include "export/onnx_export.h"

#include <unordered_map>

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
  bool signed_weights = false;
  bool integer_products = false;
  bool shared_weights = false;
  for (const Quantizer& quantizer : exporter.quantized.quantizers) {
    if (!quantizer.enabled) continue;
    const Format& own = format(quantizer.spec.format);
    if (own.kind != FormatKind::Integer) continue;
    if (quantizer.is_activation() && own.bits == 8) eight_bit_activations = true;
    if (quantizer.kind != Slot::Weight) continue;
    shared_weights |= quantizer.readers.size() > 1;
    signed_weights |= own.is_signed;
    for (const Reader& reader : quantizer.readers) {
      const std::string& op = exporter.node(reader).op;
      integer_products |= op == "MatMul" || op == "Gemm";
    }
  }
  if (eight_bit_activations && signed_weights) {
    exporter.note(fmt::format(
        "ONNX Runtime on x64 without VNNI saturates uint8 × int8 products unless session.x64quantprecision is 1{}",
        shared_weights ? ", which it refuses here, where layers share a weight" : ""));
  } else if (integer_products && !eight_bit_activations) {
    exporter.note(
        "ONNX Runtime rounds the inputs of MatMulNBits to 8 bits unless session.qdq_matmulnbits_accuracy_level is 1");
  }
}

/// Initializers that stand among the inputs, as all had to until IR version 4, become constants: a caller that
/// overrides one would find its codes gone.
void drop_default_inputs(Exporter& exporter) {
  constexpr int64_t kFirstWithConstants = 4;
  Model& model = exporter.model;
  const auto dropped = std::erase_if(
      model.graph.inputs, [&](const ValueInfo& input) { return model.graph.find_initializer(input.name) != nullptr; });
  if (dropped > 0) exporter.note(fmt::format("{} inputs with a default value are constants in the file", dropped));
  model.ir_version = std::max(model.ir_version, kFirstWithConstants);
}

/// New names told what is what while the graph was edited; in a small model they would take more than the numbers.
class ShortNames {
 public:
  ShortNames(const Graph& graph, const Exporter& exporter) {
    FreshNames names(graph);
    for (const std::string& name : exporter.edit.made()) {
      if (!exporter.lasting.contains(name)) short_.emplace(name, names.make(fmt::format("q{}", short_.size())));
    }
  }

  void apply(Graph& graph) const {
    for (Initializer& initializer : graph.initializers) shorten(initializer.name);
    for (Node& node : graph.nodes) {
      if (short_.contains(node.name)) node.name.clear();
      for (std::string& name : node.inputs) shorten(name);
      for (std::string& name : node.outputs) shorten(name);
      edit_subgraphs(node, [&](Graph& inside) { apply(inside); });
    }
  }

 private:
  void shorten(std::string& name) const {
    const auto found = short_.find(name);
    if (found != short_.end()) name = found->second;
  }

  std::unordered_map<std::string, std::string> short_;
};

}  // namespace

}  // namespace onnx_export

Exported export_onnx(const QuantizedModel& given, const ExportOptions& options) {
  QuantizedModel quantized = given;
  quantized.model = rounded_model(given);
  onnx_export::Exporter exporter(quantized, options);
  onnx_export::drop_default_inputs(exporter);
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
  for (const std::function<void()>& rewrite : exporter.last) rewrite();
  exporter.edit.finish();
  onnx_export::ShortNames(exporter.model.graph, exporter).apply(exporter.model.graph);
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
