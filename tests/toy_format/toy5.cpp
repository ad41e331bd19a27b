#include "numerics/format.h"

namespace kaon {

void register_toy5(Registry<Format>& formats) {
  formats.add("toy5", {.name = "toy5", .kind = FormatKind::Integer, .bits = 5, .is_signed = false});
}

}  // namespace kaon
