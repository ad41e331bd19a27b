// uint4: unsigned, [0, 15]. Dense: two to a byte, the first in the low nibble.
#include "numerics/format.h"

namespace kaon {

void register_uint4(Registry<Format>& registry) {
  registry.add("uint4", {.name = "uint4", .kind = FormatKind::Integer, .bits = 4, .is_signed = false, .onnx_type = 21});
}

}  // namespace kaon
