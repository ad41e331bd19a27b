#include <algorithm>
#include <cstring>

#include "base/parallel.h"
#include "numerics/check.h"
#include "numerics/quantize.h"

namespace kaon {

namespace {

// Eight codes of b bits are b whole bytes: the unit of work.
constexpr int64_t kGroup = 8;
constexpr int64_t kGrain = 64 * 1024;

void check_packing(int64_t codes, int64_t packed, const Format& format, int64_t count) {
  if (count < 0) fail(ErrorCode::InvalidInput, "count", "count is {}; it must be 0 or more", count);
  check_size(codes, count * format.code_bytes(), "codes");
  check_size(packed, packed_bytes(format, count), "packed");
}

/// Calls body(first code, number of codes <= kGroup, first byte, number of bytes) for every group.
template <class Body>
void for_each_group(const Format& format, int64_t count, const Body& body) {
  parallel_for(0, (count + kGroup - 1) / kGroup, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) {
      const int64_t size = std::min(kGroup, count - group * kGroup);
      body(group * kGroup, size, group * format.bits, packed_bytes(format, size));
    }
  });
}

bool has_signed_codes(const Format& format) {
  if (format.kind == FormatKind::Block) return has_signed_codes(kaon::format(format.element));
  return format.kind == FormatKind::Integer && format.is_signed;
}

}  // namespace

int64_t packed_bytes(const Format& format, int64_t count) { return (count * format.bits + 7) / 8; }

void pack(std::span<const std::byte> codes, std::span<std::byte> packed, const Format& format, int64_t count) {
  check_packing(std::ssize(codes), std::ssize(packed), format, count);
  if (format.bits % 8 == 0) {
    std::copy(codes.begin(), codes.end(), packed.begin());
    return;
  }
  const uint64_t mask = (uint64_t{1} << format.bits) - 1;
  for_each_group(format, count, [&](int64_t code, int64_t size, int64_t byte, int64_t bytes) {
    uint64_t word = 0;
    for (int64_t i = 0; i < size; ++i) {
      word |= (static_cast<uint64_t>(codes[code + i]) & mask) << (i * format.bits);
    }
    for (int64_t i = 0; i < bytes; ++i) packed[byte + i] = static_cast<std::byte>(word >> (8 * i));
  });
}

void unpack(std::span<const std::byte> packed, std::span<std::byte> codes, const Format& format, int64_t count) {
  check_packing(std::ssize(codes), std::ssize(packed), format, count);
  if (format.bits % 8 == 0) {
    std::copy(packed.begin(), packed.end(), codes.begin());
    return;
  }
  const uint64_t mask = (uint64_t{1} << format.bits) - 1;
  const uint64_t sign = has_signed_codes(format) ? uint64_t{1} << (format.bits - 1) : 0;
  for_each_group(format, count, [&](int64_t code, int64_t size, int64_t byte, int64_t bytes) {
    uint64_t word = 0;
    for (int64_t i = 0; i < bytes; ++i) word |= static_cast<uint64_t>(packed[byte + i]) << (8 * i);
    for (int64_t i = 0; i < size; ++i) {
      // x ^ sign - sign copies the sign bit upwards.
      codes[code + i] = static_cast<std::byte>(((word >> (i * format.bits) & mask) ^ sign) - sign);
    }
  });
}

}  // namespace kaon
