#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "export/onnx_export.h"
#include "graph/clip.h"

namespace kaon::onnx_export {

namespace {

/// Whether the codes are the same with and without clipping before. They grow with the value, so it is enough that both
/// bounds lie at or beyond the codes at the ends.
bool covers(const Quantizer& quantizer, const ClipBounds& bounds) {
  const Format& own = format(quantizer.spec.format);
  if (own.kind != FormatKind::Integer || quantizer.params.scale.size() != 1) return false;
  const float scale = quantizer.params.scale[0];
  const float zero = quantizer.params.zero_point.empty() ? 0.0F : static_cast<float>(quantizer.params.zero_point[0]);
  return std::nearbyint(bounds.low / scale) + zero <= static_cast<float>(own.integer_min()) &&
         std::nearbyint(bounds.high / scale) + zero >= static_cast<float>(own.integer_max());
}

/// The value before the Relu or Clip nodes that `quantizer` makes superfluous; `value` itself where there are none.
/// What nobody reads then disappears with the other dead nodes.
std::string before_clips(Exporter& exporter, const Quantizer& quantizer, const std::string& value) {
  const Graph& graph = exporter.quantized.model.graph;
  const Uses& uses = exporter.edit.uses();
  std::string from = value;
  for (;;) {
    const int64_t producer = uses.producer(from);
    if (producer < 0) return from;
    const Node& node = graph.nodes[static_cast<size_t>(producer)];
    const std::optional<ClipBounds> bounds = clip_bounds(node, [&](size_t i) -> std::optional<float> {
      const Initializer* bound = graph.find_initializer(node.inputs[i]);
      if (bound == nullptr || bound->tensor.size() != 1) return std::nullopt;
      return bound->tensor.to_float()[0];
    });
    if (!bounds || !covers(quantizer, *bounds)) return from;
    from = node.inputs[0];
  }
}

/// Per tensor: scalars; per channel: one number a channel.
Shape parameter_shape(const Quantizer& quantizer) {
  if (quantizer.spec.granularity == Granularity::PerTensor) return {};
  return {std::ssize(quantizer.params.scale)};
}

Node make_cast(GraphEdit& edit, const std::string& input, int64_t type, const std::string& about,
               const std::string& what) {
  Node node = edit.make("Cast", {input}, about, what);
  node.set("to", type);
  return node;
}

/// A 16-bit float and back. Casts overflow to Inf where the simulation saturates.
void cast_there_and_back(Exporter& exporter, const Quantizer& quantizer, const Spot& spot) {
  GraphEdit& edit = exporter.edit;
  const Format& own = format(quantizer.spec.format);
  const std::string& about = quantizer.tensor;
  Node low = edit.make("Max", {spot.from, edit.scalar(static_cast<float>(own.min()))}, about, "above_min");
  Node high = edit.make("Min", {low.outputs[0], edit.scalar(static_cast<float>(own.max()))}, about, "below_max");
  Node there = make_cast(edit, high.outputs[0], own.onnx_type, about, own.name);
  Node back = make_cast(edit, there.outputs[0], static_cast<int64_t>(DType::Float32), about, "float32");
  back.outputs = {spot.to};
  for (Node* node : {&low, &high, &there, &back}) edit.insert_behind(spot.value, std::move(*node));
  exporter.need_opset(13);
}

void quantize_at(Exporter& exporter, const Quantizer& quantizer, const std::string& value, const Spot& spot) {
  GraphEdit& edit = exporter.edit;
  if (format(quantizer.spec.format).kind == FormatKind::Float) {
    const Shape shape = quantizer.spec.granularity == Granularity::PerTensor ? Shape{} : quantizer.params.tiling.grid();
    const std::string scale = edit.constant(value + "_scale", Tensor::of(shape, quantizer.params.scale));
    cast_scaled(exporter, quantizer, value, scale, spot);
    return;
  }
  const std::string scale =
      edit.constant(value + "_scale", Tensor::of(parameter_shape(quantizer), quantizer.params.scale));
  const std::string zero = edit.constant(
      value + "_zero_point",
      zero_point_tensor(format(quantizer.spec.format), parameter_shape(quantizer), quantizer.params.zero_point));
  Node to_codes = edit.make("QuantizeLinear", {spot.from, scale, zero}, value, "quantized");
  Node back = edit.make("DequantizeLinear", {to_codes.outputs[0], scale, zero}, value, "dequantized");
  back.outputs = {spot.to};
  if (quantizer.spec.granularity == Granularity::PerChannel) {
    // Negative axes count from the end in ONNX as well.
    to_codes.set("axis", quantizer.spec.axis);
    back.set("axis", quantizer.spec.axis);
    exporter.need_opset(13);
  }
  exporter.need_opset(opset_of(static_cast<DType>(format(quantizer.spec.format).onnx_type)));
  edit.insert_behind(spot.value, std::move(to_codes));
  edit.insert_behind(spot.value, std::move(back));
}

}  // namespace

void cast_scaled(Exporter& exporter, const Quantizer& quantizer, const std::string& value, const std::string& scale,
                 const Spot& spot) {
  GraphEdit& edit = exporter.edit;
  Node divided = edit.make("Div", {spot.from, scale}, value, "divided");
  Node there = make_cast(edit, divided.outputs[0], format(quantizer.spec.format).onnx_type, value, "quantized");
  Node number = make_cast(edit, there.outputs[0], static_cast<int64_t>(DType::Float32), value, "number");
  Node back = edit.make("Mul", {number.outputs[0], scale}, value, "value");
  back.outputs = {spot.to};
  for (Node* node : {&divided, &there, &number, &back}) edit.insert_behind(spot.value, std::move(*node));
  exporter.need_opset(19);
}

Spot make_spot(Exporter& exporter, const std::string& value, const std::vector<Reader>& readers) {
  GraphEdit& edit = exporter.edit;
  Spot spot;
  spot.value = value;
  if (readers.empty() && edit.uses().producer(value) >= 0) {
    spot.from = edit.fresh(value + "_raw");
    spot.to = value;
    edit.rename(value, spot.from);
    return spot;
  }
  spot.from = value;
  spot.to = edit.fresh(value + "_dequantized");
  exporter.lasting.insert(spot.to);
  edit.redirect(readers.empty() ? edit.readers_of(value) : readers, spot.to);
  return spot;
}

std::string activation_obstacle(const Quantizer& quantizer) {
  const Format& own = format(quantizer.spec.format);
  if (is_cast(own)) return "";
  const bool eight_bit_float = own.kind == FormatKind::Float && own.bits == 8;
  if (own.kind != FormatKind::Integer && !eight_bit_float) return fmt::format("ONNX Runtime has no {}", own.name);
  const bool explicit_ops = quantizer.dynamic && own.kind == FormatKind::Integer;
  if (own.onnx_type == 0 && !explicit_ops) return fmt::format("QuantizeLinear has no {}", own.name);
  if (quantizer.spec.rounding != Rounding::HalfEven) {
    return fmt::format("QuantizeLinear rounds half to even, not {}", enum_name(quantizer.spec.rounding));
  }
  const Granularity granularity = quantizer.spec.granularity;
  if (quantizer.dynamic) {
    if (granularity != Granularity::PerTensor && granularity != Granularity::PerToken) {
      return fmt::format("{} activations have no dynamic form", enum_name(granularity));
    }
    if (quantizer.spec.scale_type != ScaleType::Float32) {
      return fmt::format("dynamic scales are float32 there, not {}", enum_name(quantizer.spec.scale_type));
    }
    return "";
  }
  if (granularity != Granularity::PerTensor && granularity != Granularity::PerChannel) {
    return fmt::format("{} activations have no static form", enum_name(granularity));
  }
  return "";
}

void export_static(Exporter& exporter, const Quantizer& quantizer) {
  const auto with_value = [&](const std::string& value, const std::vector<Reader>& readers) {
    const std::string source = readers.empty() ? before_clips(exporter, quantizer, value) : value;
    Spot spot = make_spot(exporter, value, readers);
    if (source != value) spot.from = source;
    if (is_cast(format(quantizer.spec.format))) {
      cast_there_and_back(exporter, quantizer, spot);
    } else {
      quantize_at(exporter, quantizer, value, spot);
    }
  };
  with_value(quantizer.tensor, quantizer.readers);
  for (const std::string& value : quantizer.moved) with_value(value, {});
}

}  // namespace kaon::onnx_export
