#include <cstring>

#include "export/onnx_export.h"

namespace kaon::onnx_export {

const Format* stored_format(const Format& format) {
  // 4- and 6-bit floats and blocks with scales of their own have no kernel in ONNX Runtime.
  if (format.kind == FormatKind::Block || (format.kind == FormatKind::Float && format.bits < 8)) return nullptr;
  if (format.onnx_type != 0) return &format;
  if (format.kind != FormatKind::Integer) return nullptr;
  const Format* narrowest = nullptr;
  for (const auto& [name, other] : formats().items()) {
    const bool holds = other.kind == FormatKind::Integer && other.onnx_type != 0 &&
                       other.integer_min() <= format.integer_min() && other.integer_max() >= format.integer_max();
    if (holds && (narrowest == nullptr || other.bits < narrowest->bits)) narrowest = &other;
  }
  return narrowest;
}

int64_t opset_of(DType type) {
  switch (type) {
    case DType::Int8:
    case DType::UInt8:
    case DType::Int32: return 10;
    case DType::Float8E4M3FN:
    case DType::Float8E4M3FNUZ:
    case DType::Float8E5M2:
    case DType::Float8E5M2FNUZ: return 19;
    case DType::Int2:
    case DType::UInt2: return 25;
    default: return 21;
  }
}

Tensor packed_tensor(const Format& stored, Shape shape, std::span<const std::byte> codes) {
  const int64_t count = element_count(shape);
  std::vector<std::byte> bytes(static_cast<size_t>(packed_bytes(stored, count)));
  pack(codes, bytes, stored, count);
  return Tensor::copy_bytes(static_cast<DType>(stored.onnx_type), std::move(shape), bytes);
}

Tensor zero_point_tensor(const Format& stored, const Shape& shape, std::span<const int32_t> values) {
  const auto width = static_cast<size_t>(stored.code_bytes());
  std::vector<std::byte> codes(static_cast<size_t>(element_count(shape)) * width);
  for (size_t i = 0; i < values.size(); ++i) std::memcpy(&codes[i * width], &values[i], width);  // little endian
  return packed_tensor(stored, shape, codes);
}

}  // namespace kaon::onnx_export

namespace kaon {

bool onnx_has(const Format& format) { return onnx_export::stored_format(format) != nullptr; }

}  // namespace kaon
