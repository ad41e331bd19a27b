// bfp16 (AMD): 8 two's complement bytes and one shared exponent byte, scale 2^(byte - 127); 9 bits an element.
// The scale is 2^(⌊log2 amax⌋ - 6), doubled when an element would round past 127.
#include "numerics/format.h"

namespace kaon {

void register_bfp16(Registry<Format>& registry) {
  const Format f{
      .name = "bfp16",
      .kind = FormatKind::Block,
      .bits = 8,
      .element = "int8",
      .block = 8,
      .scale = ScaleType::E8M0,
      .widen_on_overflow = true,
  };
  registry.add(f.name, f);
}

}  // namespace kaon
