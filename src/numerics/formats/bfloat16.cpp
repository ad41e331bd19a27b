// bfloat16: the upper half of a float32
//   15  14 … 7     6 … 0
//   s   exponent   mantissa      bias 127, max 3.39e38, smallest 2^-133, Inf and NaN at exponent 255
#include "numerics/format.h"

namespace kaon {

void register_bfloat16(Registry<Format>& registry) {
  const Format f{
      .name = "bfloat16",
      .kind = FormatKind::Float,
      .bits = 16,
      .exponent_bits = 8,
      .mantissa_bits = 7,
      .bias = 127,
      .specials = FloatSpecials::Ieee,
      .onnx_type = 16,
  };
  registry.add(f.name, f);
}

}  // namespace kaon
