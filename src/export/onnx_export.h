#pragma once
// What the parts of the ONNX export share; export.h is what others see.
#include <algorithm>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "export/export.h"
#include "graph/edit.h"

namespace kaon::onnx_export {

/// What DynamicQuantizeLinear makes.
struct DynamicCodes {
  std::string codes;
  std::string scale;
  std::string zero_point;
};

/// A product that is computed on dynamic codes.
struct IntegerProduct {
  std::string node;  ///< its id
  DynamicCodes input;
};

/// An export in progress.
struct Exporter {
  Exporter(const QuantizedModel& source, const ExportOptions& how)
      : quantized(source), options(how), model(source.model), edit(model.graph) {}
  Exporter(const Exporter&) = delete;

  const QuantizedModel& quantized;
  const ExportOptions& options;
  Model model;
  GraphEdit edit;
  int64_t opset = 1;                 ///< the least that has what was written so far
  std::set<Reader> integer_weights;  ///< edges of weights that an integer product reads as codes
  std::vector<IntegerProduct> products;
  std::set<std::string> lasting;  ///< new values that keep the name they got: they stand for one of the model's
  std::vector<std::function<void()>> last;  ///< rewrites that come when every value has its final name
  std::vector<std::string> notes;

  /// The node that reads there, as it is in the float model.
  const Node& node(const Reader& reader) const {
    return quantized.model.graph.nodes[static_cast<size_t>(edit.uses().producer(reader.node))];
  }
  void need_opset(int64_t version) { opset = std::max(opset, version); }
  /// Each line once.
  void note(std::string line);
  /// Throws Unsupported for `quantizer`: why, and what would do.
  [[noreturn]] void refuse(const Quantizer& quantizer, const std::string& why) const;
};

/// The narrowest format with an ONNX type that ONNX Runtime reads and that holds every code of `format`, or nullptr.
const Format* stored_format(const Format& format);
/// The first opset whose QuantizeLinear and DequantizeLinear know `type`.
int64_t opset_of(DType type);
/// Codes, one in format.code_bytes() bytes each, as a tensor of the format's ONNX type.
Tensor packed_tensor(const Format& stored, Shape shape, std::span<const std::byte> codes);
/// Zero points among the codes of `stored`; all 0 where `values` is empty.
Tensor zero_point_tensor(const Format& stored, const Shape& shape, std::span<const int32_t> values);

/// Codes of a weight or bias and their parameters, in the layout of DequantizeLinear.
struct StoredWeight {
  Tensor codes;
  Tensor scale;       ///< [], [channels], or the grid of blocks
  Tensor zero_point;  ///< like scale; undefined where all are 0
  int64_t axis = -1;  ///< -1: one scale for all
  int64_t block = 0;  ///< > 0: elements of a block along axis
};

/// Throws Unsupported where ONNX has no form for it.
StoredWeight store_weight(const Exporter& exporter, const Quantizer& quantizer);
/// A matrix and its parameters with rows and columns exchanged.
StoredWeight transposed(const StoredWeight& weight);

/// Weights and biases: their readers get the dequantized ones, but for Exporter::integer_weights.
void export_weight(Exporter& exporter, const Quantizer& quantizer);

/// The value that an activation's quantizer reads, and the name of what it makes.
struct Spot {
  std::string from;
  std::string to;
  std::string value;  ///< new nodes go behind the one that makes it
};

/// Makes room for a quantizer on `value`: the readers see Spot::to from now on. `readers` as in Quantizer.
Spot make_spot(Exporter& exporter, const std::string& value, const std::vector<Reader>& readers);

/// Whether ONNX can say this quantizer of an activation; else why not.
std::string activation_obstacle(const Quantizer& quantizer);

/// An 8-bit float and back, with plain casts: ONNX Runtime's optimiser takes QuantizeLinear to be an integer's, drops
/// the Relu before it and makes integer products that it then refuses.
void cast_scaled(Exporter& exporter, const Quantizer& quantizer, const std::string& value, const std::string& scale,
                 const Spot& spot);

void export_static(Exporter& exporter, const Quantizer& quantizer);
void export_dynamic(Exporter& exporter, const Quantizer& quantizer);
/// Notes the products that become MatMulInteger or ConvInteger; comes before any weight is exported.
void plan_integer_products(Exporter& exporter);
/// Rewrites Exporter::products; comes when every value has its final name.
void write_integer_products(Exporter& exporter);

}  // namespace kaon::onnx_export
