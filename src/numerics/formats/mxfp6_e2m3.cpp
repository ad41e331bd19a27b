// mxfp6_e2m3 (OCP MX): 32 elements of fp6_e2m3 and one E8M0 scale 2^(byte - 127); 6.25 bits an element
#include "numerics/format.h"

namespace kaon {

void register_mxfp6_e2m3(Registry<Format>& registry) {
  const Format f{
      .name = "mxfp6_e2m3",
      .kind = FormatKind::Block,
      .bits = 6,
      .element = "fp6_e2m3",
      .block = 32,
      .scale = ScaleType::E8M0,
  };
  registry.add(f.name, f);
}

}  // namespace kaon
