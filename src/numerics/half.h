#pragma once
#include <cstdint>

namespace kaon {

// float16 and bfloat16 as bit patterns. To 16 bits rounds half to even; past the maximum gives Inf. A NaN stays a NaN:
// it keeps its sign and the upper bits of its payload, and becomes quiet.

float float16_to_float32(uint16_t bits);
uint16_t float32_to_float16(float value);

float bfloat16_to_float32(uint16_t bits);
uint16_t float32_to_bfloat16(float value);

}  // namespace kaon
