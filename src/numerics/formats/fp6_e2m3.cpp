// fp6_e2m3 (OCP MX element)
//   5   4 3        2 … 0
//   s   exponent   mantissa      bias 1, max 7.5, smallest 2^-3, every code is a number
#include "numerics/format.h"

namespace kaon {

void register_fp6_e2m3(Registry<Format>& registry) {
  const Format f{
      .name = "fp6_e2m3",
      .kind = FormatKind::Float,
      .bits = 6,
      .exponent_bits = 2,
      .mantissa_bits = 3,
      .bias = 1,
      .specials = FloatSpecials::Finite,
  };
  registry.add(f.name, f);
}

}  // namespace kaon
