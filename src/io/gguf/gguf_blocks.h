#pragma once
#include <cstddef>
#include <utility>

namespace kaon {

/// The values of IQ4's codes.
inline constexpr float kNonLinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

inline int nearest_non_linear(float value) {
  int code = 0;
  while (code < 15 && value > (kNonLinear[code] + kNonLinear[code + 1]) / 2) ++code;
  return code;
}

// Super-blocks of 256 elements: scales and minima of their groups are found by least squares over several ranges, then
// rounded to their own few bits, and the codes are the nearest ones for what is left of them. `importance`, unless
// null, says how much the error of each element counts.
void quantize_q2_k(const float* x, const float* importance, std::byte* out);
void quantize_q3_k(const float* x, const float* importance, std::byte* out);
void quantize_q4_k(const float* x, const float* importance, std::byte* out);
void quantize_q5_k(const float* x, const float* importance, std::byte* out);
void quantize_q6_k(const float* x, const float* importance, std::byte* out);

/// Of 32 elements ≈ step · code, codes from -half to half - 1: the step with the least weighted error.
float weighted_step(const float* x, const float* importance, int half);
/// Of 32 elements ≈ step · code + minimum, codes from 0 to `most`.
std::pair<float, float> weighted_step_and_minimum(const float* x, const float* importance, int most);

}  // namespace kaon
