// fp4_e2m1 (OCP MX element): 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives
//   3   2 1        0
//   s   exponent   mantissa      bias 1, max 6, smallest 0.5, every code is a number
#include "numerics/format.h"

namespace kaon {

void register_fp4_e2m1(Registry<Format>& registry) {
  const Format f{
      .name = "fp4_e2m1",
      .kind = FormatKind::Float,
      .bits = 4,
      .exponent_bits = 2,
      .mantissa_bits = 1,
      .bias = 1,
      .specials = FloatSpecials::Finite,
      .onnx_type = 23,
  };
  registry.add(f.name, f);
}

}  // namespace kaon
