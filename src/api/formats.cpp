#include "api/formats.h"

#include <nlohmann/json.hpp>

#include "numerics/tensor_spec.h"

namespace kaon {

namespace {

std::string kind_name(FormatKind kind) {
  switch (kind) {
    case FormatKind::Integer: return "integer";
    case FormatKind::Float: return "float";
    case FormatKind::Block: return "block";
  }
  fail(ErrorCode::Internal, "format", "kind {} has no name", static_cast<int>(kind));
}

FormatInfo describe(const Format& format) {
  FormatInfo info;
  info.name = format.name;
  info.bits = format.bits;
  info.kind = kind_name(format.kind);
  info.min = format.min();
  info.max = format.max();
  info.smallest = format.smallest();
  const bool is_block = format.kind == FormatKind::Block;
  const Format& element = is_block ? kaon::format(format.element) : format;
  if (element.kind == FormatKind::Float) {
    info.exponent_bits = element.exponent_bits;
    info.mantissa_bits = element.mantissa_bits;
    info.bias = element.bias;
  }
  if (is_block) {
    info.element = format.element;
    info.block = format.block;
    info.scale = enum_name(format.scale);
  }
  if (format.onnx_type != 0) info.onnx_type = format.onnx_type;
  return info;
}

template <typename T>
nlohmann::ordered_json or_null(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

}  // namespace

std::vector<FormatInfo> list_formats() {
  std::vector<FormatInfo> infos;
  for (const auto& [name, format] : formats().items()) infos.push_back(describe(format));
  return infos;
}

nlohmann::ordered_json to_json(const std::vector<FormatInfo>& formats) {
  auto rows = nlohmann::ordered_json::array();
  for (const FormatInfo& info : formats) {
    rows.push_back({{"name", info.name},
                    {"bits", info.bits},
                    {"kind", info.kind},
                    {"min", info.min},
                    {"max", info.max},
                    {"smallest", info.smallest},
                    {"exponent_bits", or_null(info.exponent_bits)},
                    {"mantissa_bits", or_null(info.mantissa_bits)},
                    {"bias", or_null(info.bias)},
                    {"element", or_null(info.element)},
                    {"block", or_null(info.block)},
                    {"scale", or_null(info.scale)},
                    {"onnx_type", or_null(info.onnx_type)}});
  }
  return rows;
}

}  // namespace kaon
