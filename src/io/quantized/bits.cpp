#include "io/quantized/bits.h"

namespace kaon {

void pack_words(const std::byte* numbers, int64_t count, int bits, std::span<uint32_t> words, int64_t stride) {
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  if (bits == 4 && stride == 1) {  // what most files hold
    auto* bytes = reinterpret_cast<uint8_t*>(words.data());
    if (!words.empty()) words.back() = 0;
    const auto* from = reinterpret_cast<const uint8_t*>(numbers);
    for (int64_t i = 0; i < count / 2; ++i) {
      bytes[i] = static_cast<uint8_t>((from[2 * i] & 15) | (from[2 * i + 1] << 4));
    }
    if (count % 2 != 0) bytes[count / 2] = from[count - 1] & 15;
    return;
  }
  uint64_t held = 0;
  int filled = 0;
  size_t at = 0;
  for (int64_t i = 0; i < count; ++i) {
    held |= (static_cast<uint64_t>(numbers[i * stride]) & mask) << filled;
    filled += bits;
    if (filled < 32) continue;
    words[at++] = static_cast<uint32_t>(held);
    held >>= 32;
    filled -= 32;
  }
  if (filled > 0) words[at] = static_cast<uint32_t>(held);
}

void unpack_nibbles(const std::byte* bytes, std::span<std::byte> numbers) {
  const size_t pairs = numbers.size() / 2;
  for (size_t i = 0; i < pairs; ++i) {
    numbers[2 * i] = bytes[i] & std::byte{15};
    numbers[2 * i + 1] = bytes[i] >> 4;
  }
  if (numbers.size() % 2 != 0) numbers.back() = bytes[pairs] & std::byte{15};
}

void unpack_words(const uint32_t* words, int64_t count, int bits, std::span<std::byte> numbers, int64_t stride,
                  int64_t word_stride) {
  if (bits == 4 && stride == 1 && word_stride == 1) {
    unpack_nibbles(reinterpret_cast<const std::byte*>(words), numbers.first(static_cast<size_t>(count)));
    return;
  }
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  uint64_t held = 0;
  int filled = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (filled < bits) {
      held |= static_cast<uint64_t>(*words) << filled;
      words += word_stride;
      filled += 32;
    }
    numbers[static_cast<size_t>(i * stride)] = static_cast<std::byte>(held & mask);
    held >>= bits;
    filled -= bits;
  }
}

}  // namespace kaon
