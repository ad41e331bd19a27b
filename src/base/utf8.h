#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace kaon {

/// The length of the character that `text` (not empty) starts with, or 0 when its bytes are not one.
size_t utf8_length(std::string_view text);

/// Where the first byte is that is not part of valid UTF-8; npos where all of it is.
size_t find_invalid_utf8(std::string_view text);

/// Takes the first character off valid UTF-8 (not empty).
char32_t take_utf8(std::string_view& text);

void append_utf8(char32_t character, std::string& out);

/// The text with each ill-formed part (as long as it could still have become a character) replaced by U+FFFD.
std::string lossy_utf8(std::string_view text);

}  // namespace kaon
