#include "base/sha256.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace kaon {
namespace {

constexpr size_t kBlock = 64;

/// The first 32 bits behind the point of the `root`-th roots of the first `N` primes.
template <size_t N>
std::array<uint32_t, N> fractions_of_roots(int root) {
  std::array<uint32_t, N> words{};
  size_t found = 0;
  for (int candidate = 2; found < N; ++candidate) {
    bool prime = true;
    for (int divisor = 2; divisor * divisor <= candidate; ++divisor) prime = prime && candidate % divisor != 0;
    if (!prime) continue;
    const long double value =
        root == 2 ? std::sqrt(static_cast<long double>(candidate)) : std::cbrt(static_cast<long double>(candidate));
    words[found++] = static_cast<uint32_t>((value - std::floor(value)) * 4294967296.0L);
  }
  return words;
}

void add_block(std::array<uint32_t, 8>& state, const std::byte* block) {
  static const std::array<uint32_t, 64> kRound = fractions_of_roots<64>(3);
  std::array<uint32_t, 64> w{};
  for (size_t i = 0; i < 16; ++i) {
    uint32_t word = 0;
    std::memcpy(&word, block + 4 * i, 4);
    w[i] = __builtin_bswap32(word);
  }
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t first = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const uint32_t second = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + first, d = c, c = b, b = a, a = first + second;
  }
  const std::array<uint32_t, 8> mixed{a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < state.size(); ++i) state[i] += mixed[i];
}

}  // namespace

std::string sha256(std::span<const std::byte> bytes) {
  std::array<uint32_t, 8> state = fractions_of_roots<8>(2);
  const size_t whole = bytes.size() / kBlock * kBlock, rest = bytes.size() - whole;
  for (size_t at = 0; at < whole; at += kBlock) add_block(state, bytes.data() + at);
  std::array<std::byte, 2 * kBlock> last{};
  std::ranges::copy(bytes.subspan(whole), last.begin());
  last[rest] = std::byte{0x80};
  const size_t end = rest + 9 > kBlock ? 2 * kBlock : kBlock;
  const uint64_t bits = __builtin_bswap64(bytes.size() * 8);
  std::memcpy(&last[end - 8], &bits, 8);
  for (size_t at = 0; at < end; at += kBlock) add_block(state, &last[at]);
  std::string text;
  for (const uint32_t word : state) text += fmt::format("{:08x}", word);
  return text;
}

}  // namespace kaon
