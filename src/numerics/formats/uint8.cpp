// uint8: unsigned, [0, 255].
#include "numerics/format.h"

namespace kaon {

void register_uint8(Registry<Format>& registry) {
  registry.add("uint8", {.name = "uint8", .kind = FormatKind::Integer, .bits = 8, .is_signed = false, .onnx_type = 2});
}

}  // namespace kaon
