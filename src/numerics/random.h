#pragma once
#include <cstdint>

namespace kaon {

/// MurmurHash3's 32-bit finalizer: a bijection that mixes every bit into every other.
constexpr uint32_t mix_bits(uint32_t h) {
  h ^= h >> 16;
  h *= 0x85ebca6bu;
  h ^= h >> 13;
  h *= 0xc2b2ae35u;
  h ^= h >> 16;
  return h;
}

/// The random numbers of stochastic rounding: a function of the seed and the element's index alone, so threads, SIMD
/// width and tiling change nothing. Only 32-bit operations depend on the low half of the index; `first` and `second`
/// are constant over any 2^32 elements that share the high half.
struct RandomKey {
  uint32_t first;
  uint32_t second;

  constexpr RandomKey(uint64_t seed, uint64_t index)
      : first(mix_bits(static_cast<uint32_t>(seed) + 0x9e3779b9u)),
        second(mix_bits(static_cast<uint32_t>(seed >> 32) ^ mix_bits(static_cast<uint32_t>(index >> 32) + first))) {}
};

/// u = k / 2^24 with k uniform in [0, 2^24): random_24(…) is k.
constexpr uint32_t random_24(RandomKey key, uint32_t index_low) {
  return mix_bits(mix_bits(index_low ^ key.first) + key.second) >> 8;
}

/// u in [0, 1). Stochastic rounding moves a magnitude up, away from zero, exactly when its fraction is above u.
constexpr float random_unit(uint64_t seed, uint64_t index) {
  return static_cast<float>(random_24(RandomKey(seed, index), static_cast<uint32_t>(index))) * 0x1p-24f;
}

}  // namespace kaon
