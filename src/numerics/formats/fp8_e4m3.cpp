// fp8_e4m3 (E4M3FN of the OCP FP8 specification)
//   7   6 … 3      2 … 0
//   s   exponent   mantissa      bias 7, max 448 (S.1111.110), smallest 2^-9, NaN S.1111.111, no Inf
#include "numerics/format.h"

namespace kaon {

void register_fp8_e4m3(Registry<Format>& registry) {
  const Format f{
      .name = "fp8_e4m3",
      .kind = FormatKind::Float,
      .bits = 8,
      .exponent_bits = 4,
      .mantissa_bits = 3,
      .bias = 7,
      .specials = FloatSpecials::NanOnly,
      .onnx_type = 17,
  };
  registry.add(f.name, f);
}

}  // namespace kaon
