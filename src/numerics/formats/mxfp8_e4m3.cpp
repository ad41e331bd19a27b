// mxfp8_e4m3 (OCP MX): 32 elements of fp8_e4m3 and one E8M0 scale 2^(byte - 127); 8.25 bits an element
#include "numerics/format.h"

namespace kaon {

void register_mxfp8_e4m3(Registry<Format>& registry) {
  const Format f{
      .name = "mxfp8_e4m3",
      .kind = FormatKind::Block,
      .bits = 8,
      .element = "fp8_e4m3",
      .block = 32,
      .scale = ScaleType::E8M0,
  };
  registry.add(f.name, f);
}

}  // namespace kaon
