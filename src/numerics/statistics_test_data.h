#pragma once
// Inputs for the tests of the streaming statistics.
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace kaon {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

inline std::vector<float> normal(int64_t count, float mean, float stddev, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution(mean, stddev);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = distribution(random);
  return values;
}

}  // namespace kaon
