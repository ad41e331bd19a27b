// int4: two's complement, [-8, 7]. Dense: two to a byte, the first in the low nibble.
#include "numerics/format.h"

namespace kaon {

void register_int4(Registry<Format>& registry) {
  registry.add("int4", {.name = "int4", .kind = FormatKind::Integer, .bits = 4, .is_signed = true, .onnx_type = 22});
}

}  // namespace kaon
