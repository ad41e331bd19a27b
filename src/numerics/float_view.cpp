#include "numerics/float_view.h"

#include <cstddef>
#include <cstring>

#include "numerics/half.h"

namespace kaon {

float FloatView::at(int64_t i) const {
  const auto* bytes = static_cast<const std::byte*>(data);
  if (type == Type::Float32) {
    float value = 0;
    std::memcpy(&value, bytes + i * 4, 4);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, bytes + i * 2, 2);
  return type == Type::Float16 ? float16_to_float32(bits) : bfloat16_to_float32(bits);
}

}  // namespace kaon
