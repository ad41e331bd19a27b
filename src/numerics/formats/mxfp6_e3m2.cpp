// mxfp6_e3m2 (OCP MX): 32 elements of fp6_e3m2 and one E8M0 scale 2^(byte - 127); 6.25 bits an element
#include "numerics/format.h"

namespace kaon {

void register_mxfp6_e3m2(Registry<Format>& registry) {
  const Format f{
      .name = "mxfp6_e3m2",
      .kind = FormatKind::Block,
      .bits = 6,
      .element = "fp6_e3m2",
      .block = 32,
      .scale = ScaleType::E8M0,
  };
  registry.add(f.name, f);
}

}  // namespace kaon
