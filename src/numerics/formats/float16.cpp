// float16 (IEEE binary16)
//   15  14 … 10    9 … 0
//   s   exponent   mantissa      bias 15, max 65504, smallest 2^-24, Inf and NaN at exponent 31
#include "numerics/format.h"

namespace kaon {

void register_float16(Registry<Format>& registry) {
  const Format f{
      .name = "float16",
      .kind = FormatKind::Float,
      .bits = 16,
      .exponent_bits = 5,
      .mantissa_bits = 10,
      .bias = 15,
      .specials = FloatSpecials::Ieee,
      .onnx_type = 10,
  };
  registry.add(f.name, f);
}

}  // namespace kaon
