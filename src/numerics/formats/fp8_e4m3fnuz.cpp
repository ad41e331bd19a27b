// fp8_e4m3fnuz
//   7   6 … 3      2 … 0
//   s   exponent   mantissa      bias 8, max 240, smallest 2^-10, NaN 0x80, no Inf, no -0
#include "numerics/format.h"

namespace kaon {

void register_fp8_e4m3fnuz(Registry<Format>& registry) {
  const Format f{
      .name = "fp8_e4m3fnuz",
      .kind = FormatKind::Float,
      .bits = 8,
      .exponent_bits = 4,
      .mantissa_bits = 3,
      .bias = 8,
      .specials = FloatSpecials::NegZeroNan,
      .onnx_type = 18,
  };
  registry.add(f.name, f);
}

}  // namespace kaon
