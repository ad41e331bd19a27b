#include "engine/affine.h"
#include "engine/cast.h"

namespace kaon {

namespace {

struct QuantizeAttributes {
  int64_t axis = 1;
  int64_t block = 0;  ///< 0: none
  DType type = DType::Undefined;
  DType precision = DType::Undefined;
  bool saturate = true;

  at::Tensor spread(const at::Tensor& parameter, at::IntArrayRef shape) const {
    const bool blocked = block > 0 && parameter.dim() > 0;
    return blocked ? along_blocks(parameter, shape, axis, block) : along_axis(parameter, shape, axis);
  }
};

DType type_attribute(const OpInfo& info, const char* name) {
  const auto type = static_cast<DType>(info.node().get_int(name, 0));
  if (type != DType::Undefined && !is_known(type)) {
    info.unsupported(fmt::format("{} {} is no type", name, static_cast<int>(type)));
  }
  return type;
}

QuantizeAttributes read_attributes(const OpInfo& info) {
  QuantizeAttributes attributes;
  attributes.axis = info.node().get_int("axis", 1);
  attributes.block = info.node().get_int("block_size", 0);
  if (attributes.block < 0) {
    fail(ErrorCode::InvalidInput, info.node().label(), "'block_size' must be 0 or more, not {}", attributes.block);
  }
  attributes.type = type_attribute(info, "output_dtype");
  attributes.precision = type_attribute(info, "precision");
  attributes.saturate = info.node().get_int("saturate", 1) != 0;
  return attributes;
}

Kernel make_quantize(const OpInfo& info) {
  return [attributes = read_attributes(info)](Call& call) {
    DType type = attributes.type == DType::Undefined ? DType::UInt8 : attributes.type;
    at::Tensor zero;
    const at::IntArrayRef shape = call.in(0).sizes();
    if (call.has(2)) {
      type = call.type(2);
      zero = attributes.spread(to_float(call.value(2)), shape);
    }
    at::Tensor scaled = to_float(call.value(0)) / attributes.spread(to_float(call.value(1)), shape);
    if (attributes.precision != DType::Undefined) {
      scaled = to_float(cast({scaled, DType::Float32}, attributes.precision));
    }
    call.out(0, to_codes(scaled, zero, type, attributes.saturate));
  };
}

Kernel make_dequantize(const OpInfo& info) {
  return [attributes = read_attributes(info)](Call& call) {
    const Value& codes = call.value(0);
    DType type = attributes.type;
    if (type == DType::Undefined) type = call.type(1) == DType::Float8E8M0 ? DType::Float32 : call.type(1);
    // float32 holds the codes of up to 16 bits exactly.
    const DType wide = bits_of(codes.type) > 16 ? DType::Float64 : DType::Float32;
    at::Tensor numbers = cast(codes, wide).tensor;
    if (call.has(2)) numbers = numbers - attributes.spread(cast(call.value(2), wide).tensor, numbers.sizes());
    const at::Tensor scale = attributes.spread(to_float(call.value(1)), numbers.sizes());
    call.out(0, cast({numbers.to(at::kFloat) * scale, DType::Float32}, type));
  };
}

void dynamic_quantize(Call& call) {
  const DynamicCodes dynamic = quantize_dynamic(call.in(0));
  call.out(0, dynamic.codes);
  call.out(1, dynamic.scale);
  call.out(2, dynamic.zero, DType::UInt8);
}

/// Samples have parameters of their own where the axis is that of the samples.
void decide_samples(const NodeView& view, OpFacts& facts) {
  const std::optional<Shape> scale = view.has(1) ? view.shape(1) : std::nullopt;
  const bool apart =
      scale && (element_count(*scale) == 1 ||
                (view.node.get_int("block_size", 0) == 0 && view.axis(view.node.get_int("axis", 1)).value_or(0) != 0));
  if (!apart) facts.samples = Samples::Mixed;
}

}  // namespace

void register_quantize(OpRegistry& ops) {
  for (const char* domain : {"", kMicrosoft}) {
    ops.add("QuantizeLinear", make_quantize, per_sample().where(decide_samples), domain);
    ops.add("DequantizeLinear", make_dequantize, per_sample().where(decide_samples), domain);
  }
  ops.add_simple("DynamicQuantizeLinear", dynamic_quantize, fixed_shape());
}

}  // namespace kaon
