// fp6_e3m2 (OCP MX element)
//   5   4 … 2      1 0
//   s   exponent   mantissa      bias 3, max 28, smallest 2^-4, every code is a number
#include "numerics/format.h"

namespace kaon {

void register_fp6_e3m2(Registry<Format>& registry) {
  const Format f{
      .name = "fp6_e3m2",
      .kind = FormatKind::Float,
      .bits = 6,
      .exponent_bits = 3,
      .mantissa_bits = 2,
      .bias = 3,
      .specials = FloatSpecials::Finite,
  };
  registry.add(f.name, f);
}

}  // namespace kaon
