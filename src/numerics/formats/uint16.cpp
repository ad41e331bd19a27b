// uint16: unsigned, [0, 65535].
#include "numerics/format.h"

namespace kaon {

void register_uint16(Registry<Format>& registry) {
  registry.add("uint16",
               {.name = "uint16", .kind = FormatKind::Integer, .bits = 16, .is_signed = false, .onnx_type = 4});
}

}  // namespace kaon
