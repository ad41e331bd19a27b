// int32: two's complement, [-2^31, 2^31 - 1].
#include "numerics/format.h"

namespace kaon {

void register_int32(Registry<Format>& registry) {
  registry.add("int32", {.name = "int32", .kind = FormatKind::Integer, .bits = 32, .is_signed = true, .onnx_type = 6});
}

}  // namespace kaon
