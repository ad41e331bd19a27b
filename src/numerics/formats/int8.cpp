// int8: two's complement, [-128, 127].
#include "numerics/format.h"

namespace kaon {

void register_int8(Registry<Format>& registry) {
  registry.add("int8", {.name = "int8", .kind = FormatKind::Integer, .bits = 8, .is_signed = true, .onnx_type = 3});
}

}  // namespace kaon
