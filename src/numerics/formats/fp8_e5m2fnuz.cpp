// fp8_e5m2fnuz
//   7   6 … 2      1 0
//   s   exponent   mantissa      bias 16, max 57344, smallest 2^-17, NaN 0x80, no Inf, no -0
#include "numerics/format.h"

namespace kaon {

void register_fp8_e5m2fnuz(Registry<Format>& registry) {
  const Format f{
      .name = "fp8_e5m2fnuz",
      .kind = FormatKind::Float,
      .bits = 8,
      .exponent_bits = 5,
      .mantissa_bits = 2,
      .bias = 16,
      .specials = FloatSpecials::NegZeroNan,
      .onnx_type = 20,
  };
  registry.add(f.name, f);
}

}  // namespace kaon
