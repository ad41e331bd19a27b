// uint3: [0, 7]. Dense: element i at bit 3i, least significant first.
#include "numerics/format.h"

namespace kaon {

void register_uint3(Registry<Format>& registry) {
  registry.add("uint3", {.name = "uint3", .kind = FormatKind::Integer, .bits = 3, .is_signed = false});
}

}  // namespace kaon
