// int3: two's complement, [-4, 3]. Dense: element i at bit 3i, least significant first.
#include "numerics/format.h"

namespace kaon {

void register_int3(Registry<Format>& registry) {
  registry.add("int3", {.name = "int3", .kind = FormatKind::Integer, .bits = 3, .is_signed = true});
}

}  // namespace kaon
