// int16: two's complement, [-32768, 32767].
#include "numerics/format.h"

namespace kaon {

void register_int16(Registry<Format>& registry) {
  registry.add("int16", {.name = "int16", .kind = FormatKind::Integer, .bits = 16, .is_signed = true, .onnx_type = 5});
}

}  // namespace kaon
