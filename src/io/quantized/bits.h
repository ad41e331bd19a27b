#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace kaon {

/// Packs `count` numbers of `bits` bits (1 to 8), the low bits of a byte each, densely into 32-bit words: number i at
/// bit i · bits, the lowest first. `stride` numbers lie between two of them. `words` holds ⌈count · bits / 32⌉.
void pack_words(const std::byte* numbers, int64_t count, int bits, std::span<uint32_t> words, int64_t stride = 1);

/// The other way round; `word_stride` words lie between two of them.
void unpack_words(const uint32_t* words, int64_t count, int bits, std::span<std::byte> numbers, int64_t stride = 1,
                  int64_t word_stride = 1);

/// Two numbers a byte, the first in the low bits.
void unpack_nibbles(const std::byte* bytes, std::span<std::byte> numbers);

inline int64_t packed_words(int64_t count, int bits) { return (count * bits + 31) / 32; }

}  // namespace kaon
