// nvfp4: 16 elements of fp4_e2m1, one fp8_e4m3 scale for them, one float32 global scale g for the tensor;
// value = element · scale / g; 4.5 bits an element
#include "numerics/format.h"

namespace kaon {

void register_nvfp4(Registry<Format>& registry) {
  const Format f{
      .name = "nvfp4",
      .kind = FormatKind::Block,
      .bits = 4,
      .element = "fp4_e2m1",
      .block = 16,
      .scale = ScaleType::E4M3,
      .global_scale = true,
  };
  registry.add(f.name, f);
}

}  // namespace kaon
