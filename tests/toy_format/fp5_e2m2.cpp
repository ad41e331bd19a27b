// fp5_e2m2, a toy
//   4   3 2        1 0
//   s   exponent   mantissa      bias 1, max 7, smallest 2^-2, every code is a number
#include "numerics/format.h"

namespace kaon {

void register_fp5_e2m2(Registry<Format>& registry) {
  const Format f{
      .name = "fp5_e2m2",
      .kind = FormatKind::Float,
      .bits = 5,
      .exponent_bits = 2,
      .mantissa_bits = 2,
      .bias = 1,
      .specials = FloatSpecials::Finite,
  };
  registry.add(f.name, f);
}

}  // namespace kaon
