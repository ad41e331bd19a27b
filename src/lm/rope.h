#pragma once
#include <cstdint>
#include <vector>

#include "lm/config.h"

namespace kaon::lm {

/// Rotary positions: pair i of a head is turned by position · frequencies[i].
struct Rope {
  int64_t width = 0;                    ///< elements of a head that are turned; the rest is left alone
  std::vector<float> frequencies;       ///< width / 2 of them
  std::vector<float> long_frequencies;  ///< instead, for more than `long_from` tokens; empty: always the same
  int64_t long_from = 0;
  float scaling = 1;  ///< of cosine and sine
};

/// As Hugging Face computes them, in float32, from `rope_parameters` or from `rope_theta` and `rope_scaling`: types
/// default, linear, llama3 and longrope. Throws Unsupported for others.
Rope read_rope(const Config& config, int64_t head_width, double default_theta = 10000);

}  // namespace kaon::lm
