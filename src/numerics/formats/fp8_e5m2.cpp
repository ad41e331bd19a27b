// fp8_e5m2: the upper half of a float16
//   7   6 … 2      1 0
//   s   exponent   mantissa      bias 15, max 57344, smallest 2^-16, Inf and NaN at exponent 31
#include "numerics/format.h"

namespace kaon {

void register_fp8_e5m2(Registry<Format>& registry) {
  const Format f{
      .name = "fp8_e5m2",
      .kind = FormatKind::Float,
      .bits = 8,
      .exponent_bits = 5,
      .mantissa_bits = 2,
      .bias = 15,
      .specials = FloatSpecials::Ieee,
      .onnx_type = 19,
  };
  registry.add(f.name, f);
}

}  // namespace kaon
