#include <algorithm>
#include <cfloat>

#include "base/error.h"
#include "export/onnx_export.h"
#include "graph/stored.h"

namespace kaon::onnx_export {

namespace {

/// DynamicQuantizeLinear gives exactly these parameters.
bool is_dynamic_quantize_linear(const Quantizer& quantizer) {
  const Format& own = format(quantizer.spec.format);
  return own.onnx_type == static_cast<int>(DType::UInt8) && quantizer.spec.granularity == Granularity::PerTensor &&
         !quantizer.spec.symmetric;
}

const Quantizer* constant_quantizer(const QuantizedModel& quantized, const Reader& reader) {
  for (const Quantizer& quantizer : quantized.quantizers) {
    if (!quantizer.enabled || quantizer.is_activation()) continue;
    if (std::ranges::find(quantizer.readers, reader) != quantizer.readers.end()) return &quantizer;
  }
  return nullptr;
}

/// The edges on which the codes of `quantizer` are read.
std::vector<Reader> reading(const Exporter& exporter, const Quantizer& quantizer) {
  return quantizer.readers.empty() ? exporter.edit.readers_of(quantizer.tensor) : quantizer.readers;
}

/// Whether the weight's scales run along the columns of the product, or there is but one.
bool scales_fit(const Node& node, const Quantizer& weight, int64_t rank) {
  if (weight.spec.granularity == Granularity::PerTensor) return true;
  if (weight.spec.granularity != Granularity::PerChannel) return false;
  const int64_t axis = weight.spec.axis < 0 ? weight.spec.axis + rank : weight.spec.axis;
  if (node.op == "Conv") return axis == 0;
  if (node.op == "Gemm") return axis == (node.get_int("transB", 0) != 0 ? 0 : 1);
  return axis == rank - 1;
}

/// Whether MatMulInteger or ConvInteger can take the place of `node`, which reads dynamic codes on `input`.
bool has_integer_form(const Exporter& exporter, const Reader& reader) {
  const Graph& graph = exporter.quantized.model.graph;
  const Node& node = exporter.node(reader);
  const bool product = node.domain.empty() && (node.op == "Conv" || node.op == "MatMul" || node.op == "Gemm");
  if (!product || reader.input != 0) return false;
  const Quantizer* weight = constant_quantizer(exporter.quantized, {reader.node, 1});
  if (weight == nullptr) return false;
  const Format& own = format(weight->spec.format);
  if (own.kind != FormatKind::Integer || own.bits != 8) return false;
  if (!scales_fit(node, *weight, find_stored(graph, weight->tensor)->tensor.rank())) return false;
  const bool shifted = std::ranges::any_of(weight->params.zero_point, [](int32_t zero) { return zero != 0; });
  // ONNX Runtime's ConvInteger takes one zero point for the whole weight.
  if (node.op == "Conv" && shifted && weight->params.scale.size() > 1) return false;
  if (node.inputs.size() < 3 || node.inputs[2].empty()) return true;
  const Initializer* bias = graph.find_initializer(node.inputs[2]);
  return bias != nullptr && bias->tensor.type() == DType::Float32 &&
         constant_quantizer(exporter.quantized, {reader.node, 2}) == nullptr;
}

Tensor scaled(const Tensor& tensor, float factor) {
  std::vector<float> values = tensor.to_float();
  for (float& value : values) value *= factor;
  return Tensor::of(tensor.shape(), values);
}

/// [C] as [C, 1, 1 …], which lies along the channels of a convolution.
Tensor along_channels(const Tensor& tensor, int64_t weight_rank) {
  if (tensor.size() == 1) return tensor.reshaped({});
  Shape shape(static_cast<size_t>(weight_rank - 1), 1);
  shape[0] = tensor.size();
  return tensor.reshaped(std::move(shape));
}

/// A float product of fake-quantized operands as an integer one: cast(x · w) · (s_x · s_w) + bias.
void integer_product(Exporter& exporter, const std::string& id, const DynamicCodes& x) {
  GraphEdit& edit = exporter.edit;
  const Quantizer& quantizer = *constant_quantizer(exporter.quantized, {id, 1});
  Node product = edit.node(id);
  const std::string output = product.outputs[0];
  const std::string& about = quantizer.tensor;
  const bool conv = product.op == "Conv";
  StoredWeight weight = store_weight(exporter, quantizer);
  const int64_t rank = weight.codes.rank();
  Tensor scale = weight.scale, bias;
  if (product.inputs.size() > 2 && !product.inputs[2].empty()) {
    bias = exporter.quantized.model.graph.find_initializer(product.inputs[2])->tensor;
  }
  std::string codes = x.codes;
  std::vector<Node> parts;
  if (conv) {
    scale = along_channels(scale, rank);
    if (bias.defined()) bias = along_channels(bias, rank);
  } else if (product.op == "Gemm") {
    scale = scaled(scale, product.get_float("alpha", 1));
    if (bias.defined()) bias = scaled(bias, product.get_float("beta", 1));
    if (product.get_int("transB", 0) != 0) weight = transposed(weight);
    if (product.get_int("transA", 0) != 0) {
      parts.push_back(edit.make("Transpose", {codes}, output, "codes"));
      parts.back().set("perm", std::vector<int64_t>{1, 0});
      codes = parts.back().outputs[0];
    }
    product.attributes.clear();
  }
  const bool shifted = std::ranges::any_of(quantizer.params.zero_point, [](int32_t zero) { return zero != 0; });
  product.op = conv ? "ConvInteger" : "MatMulInteger";
  product.inputs = {codes, edit.constant(about + "_quantized", weight.codes), x.zero_point};
  if (shifted) product.inputs.push_back(edit.constant(about + "_zero_point", weight.zero_point));
  product.outputs = {edit.fresh(output + "_int32")};
  Node number = edit.make("Cast", {product.outputs[0]}, output, "number");
  number.set("to", static_cast<int64_t>(DType::Float32));
  Node scales = edit.make("Mul", {x.scale, edit.constant(about + "_scale", scale)}, output, "scale");
  Node result = edit.make("Mul", {number.outputs[0], scales.outputs[0]}, output, "scaled");
  for (Node* node : {&product, &number, &scales, &result}) parts.push_back(std::move(*node));
  if (bias.defined()) {
    const std::string& name = edit.node(id).inputs[2];
    parts.push_back(edit.make("Add", {parts.back().outputs[0], edit.constant(name + "_added", bias)}, output, "sum"));
  }
  parts.back().outputs = {output};
  edit.replace(id, std::move(parts));
  exporter.need_opset(11);
}

void quantize_linear(Exporter& exporter, const Quantizer& quantizer) {
  GraphEdit& edit = exporter.edit;
  const std::string& about = quantizer.tensor;
  const std::vector<Reader> readers = reading(exporter, quantizer);
  const Spot spot = make_spot(exporter, about, quantizer.readers);
  const DynamicCodes x{edit.fresh(about + "_quantized"), edit.fresh(about + "_scale"),
                       edit.fresh(about + "_zero_point")};
  Node to_codes;
  to_codes.op = "DynamicQuantizeLinear";
  to_codes.name = x.codes;
  to_codes.inputs = {spot.from};
  to_codes.outputs = {x.codes, x.scale, x.zero_point};
  edit.insert_behind(spot.value, std::move(to_codes));
  // Dead where every reader takes the codes.
  Node back = edit.make("DequantizeLinear", {x.codes, x.scale, x.zero_point}, about, "back");
  back.outputs = {spot.to};
  edit.insert_behind(spot.value, std::move(back));
  for (const Reader& reader : readers) {
    if (has_integer_form(exporter, reader)) exporter.products.push_back({reader.node, x});
  }
  exporter.need_opset(11);
}

/// Scale, and for asymmetric integers the zero point, from the data: choose_scale() in plain operators.
class ExplicitQuantizer {
 public:
  ExplicitQuantizer(Exporter& exporter, const Quantizer& quantizer, const Spot& spot)
      : exporter_(exporter),
        edit_(exporter.edit),
        quantizer_(quantizer),
        own_(format(quantizer.spec.format)),
        spot_(spot) {}

  void write() {
    const bool integer = own_.kind == FormatKind::Integer;
    if (integer && !quantizer_.spec.symmetric) {
      asymmetric_scale();
    } else {
      const int64_t half = integer ? (own_.integer_max() - own_.integer_min()) / 2 : 0;
      symmetric_scale(static_cast<float>(integer ? static_cast<double>(half) : own_.max()));
      if (integer && !own_.is_signed) zero_ = edit_.scalar(static_cast<float>(int64_t{1} << (own_.bits - 1)));
    }
    if (!integer) {
      cast_scaled(exporter_, quantizer_, quantizer_.tensor, scale_, spot_);
      return;
    }
    const std::string number = through_integers(add("Div", {spot_.from, scale_}, "divided"));
    Node back = edit_.make("Mul", {number, scale_}, quantizer_.tensor, "value");
    back.outputs = {spot_.to};
    edit_.insert_behind(spot_.value, std::move(back));
    exporter_.need_opset(13);
  }

 private:
  std::string add(const std::string& op, std::vector<std::string> inputs, const std::string& what) {
    return add(edit_.make(op, std::move(inputs), quantizer_.tensor, what));
  }
  std::string add(Node node) {
    std::string output = node.outputs[0];
    edit_.insert_behind(spot_.value, std::move(node));
    return output;
  }

  /// Over the last axis, or over everything.
  std::string reduce(const std::string& op, const std::string& value, const std::string& what) {
    Node node = edit_.make(op, {value}, quantizer_.tensor, what);
    const bool by_row = quantizer_.spec.granularity == Granularity::PerToken;
    if (!by_row) {
      node.set("keepdims", int64_t{0});
    } else if (exporter_.model.opset() >= 18) {
      node.inputs.push_back(edit_.constant("last_axis", Tensor::of<int64_t>({1}, std::vector<int64_t>{-1})));
    } else {
      node.set("axes", std::vector<int64_t>{-1});  // becomes an input when the model is brought to version 18
    }
    return add(std::move(node));
  }

  /// width / steps, at least the smallest normal number, and 1 where the width is 0.
  void scale_from(const std::string& width, float steps) {
    const std::string divided = add("Div", {width, edit_.scalar(steps)}, "step");
    const std::string normal = add("Max", {divided, edit_.scalar(FLT_MIN)}, "normal_step");
    const std::string none = add("Equal", {width, edit_.scalar(0)}, "all_zero");
    scale_ = add("Where", {none, edit_.scalar(1), normal}, "scale");
  }

  void symmetric_scale(float steps) {
    scale_from(reduce("ReduceMax", add("Abs", {spot_.from}, "abs"), "absmax"), steps);
  }

  void asymmetric_scale() {
    const std::string low = add("Min", {reduce("ReduceMin", spot_.from, "min"), edit_.scalar(0)}, "low");
    const std::string high = add("Max", {reduce("ReduceMax", spot_.from, "max"), edit_.scalar(0)}, "high");
    scale_from(add("Sub", {high, low}, "width"), static_cast<float>(own_.integer_max() - own_.integer_min()));
    const std::string shift = add("Div", {low, scale_}, "shift");
    zero_ = add("Round", {add("Sub", {edit_.scalar(lowest()), shift}, "exact_zero_point")}, "zero_point");
    zero_ = clamped(zero_, "zero_point");
  }

  float lowest() const { return static_cast<float>(own_.integer_min()); }
  float highest() const { return static_cast<float>(own_.integer_max()); }

  std::string clamped(const std::string& value, const std::string& what) {
    const std::string above = add("Max", {value, edit_.scalar(lowest())}, what + "_above");
    return add("Min", {above, edit_.scalar(highest())}, what + "_within");
  }

  std::string through_integers(const std::string& divided) {
    std::string code = add("Round", {divided}, "rounded");
    if (!zero_.empty()) code = add("Add", {code, zero_}, "shifted");
    code = clamped(code, "code");
    return zero_.empty() ? code : add("Sub", {code, zero_}, "unshifted");
  }

  Exporter& exporter_;
  GraphEdit& edit_;
  const Quantizer& quantizer_;
  const Format& own_;
  Spot spot_;
  std::string scale_;
  std::string zero_;  ///< "" = 0
};

}  // namespace

void plan_integer_products(Exporter& exporter) {
  for (const Quantizer& quantizer : exporter.quantized.quantizers) {
    const bool dynamic = quantizer.enabled && quantizer.is_activation() && quantizer.dynamic;
    if (!dynamic || !activation_obstacle(quantizer).empty() || !is_dynamic_quantize_linear(quantizer)) continue;
    for (const Reader& reader : reading(exporter, quantizer)) {
      if (has_integer_form(exporter, reader)) exporter.integer_weights.insert({reader.node, 1});
    }
  }
}

void write_integer_products(Exporter& exporter) {
  for (const IntegerProduct& product : exporter.products) integer_product(exporter, product.node, product.input);
}

void export_dynamic(Exporter& exporter, const Quantizer& quantizer) {
  if (is_dynamic_quantize_linear(quantizer)) {
    quantize_linear(exporter, quantizer);
  } else {
    const Spot spot = make_spot(exporter, quantizer.tensor, quantizer.readers);
    ExplicitQuantizer(exporter, quantizer, spot).write();
  }
}

}  // namespace kaon::onnx_export
