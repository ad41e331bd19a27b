#pragma once
#include <cstdint>
#include <string>

namespace kaon {

/// A PNG file of `height` rows of native-endian 0x??RRGGBB pixels, `stride` bytes apart. Unless `exact`, shades are
/// joined until 256 colours are enough: right for drawings, and smaller and faster.
std::string encode_png(const uint8_t* pixels, int width, int height, int stride, bool exact, const std::string& where);

}  // namespace kaon
