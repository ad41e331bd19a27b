// mxint8 (OCP MX): 32 two's complement bytes of value code/64 and one E8M0 scale 2^(byte - 127); 8.25 bits an element
#include "numerics/format.h"

namespace kaon {

void register_mxint8(Registry<Format>& registry) {
  const Format f{
      .name = "mxint8",
      .kind = FormatKind::Block,
      .bits = 8,
      .element = "int8",
      .element_exponent = -6,
      .block = 32,
      .scale = ScaleType::E8M0,
  };
  registry.add(f.name, f);
}

}  // namespace kaon
