// int2: two's complement, [-2, 1]. Dense: four to a byte, the first in the low bits.
#include "numerics/format.h"

namespace kaon {

void register_int2(Registry<Format>& registry) {
  registry.add("int2", {.name = "int2", .kind = FormatKind::Integer, .bits = 2, .is_signed = true, .onnx_type = 26});
}

}  // namespace kaon
