// uint2: unsigned, [0, 3]. Dense: four to a byte, the first in the low bits.
#include "numerics/format.h"

namespace kaon {

void register_uint2(Registry<Format>& registry) {
  registry.add("uint2", {.name = "uint2", .kind = FormatKind::Integer, .bits = 2, .is_signed = false, .onnx_type = 25});
}

}  // namespace kaon
