#pragma once
#include <cstddef>
#include <span>
#include <string>

namespace kaon {

/// The SHA-256 of `bytes` (FIPS 180-4) in hexadecimal digits, as sha256sum prints it.
std::string sha256(std::span<const std::byte> bytes);

}  // namespace kaon
