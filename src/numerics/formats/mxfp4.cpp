// mxfp4 (OCP MX): 32 elements of fp4_e2m1 and one E8M0 scale 2^(byte - 127); 4.25 bits an element
#include "numerics/format.h"

namespace kaon {

void register_mxfp4(Registry<Format>& registry) {
  const Format f{
      .name = "mxfp4",
      .kind = FormatKind::Block,
      .bits = 4,
      .element = "fp4_e2m1",
      .block = 32,
      .scale = ScaleType::E8M0,
  };
  registry.add(f.name, f);
}

}  // namespace kaon
