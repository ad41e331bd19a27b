#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace kaon {

/// GPT-2's alphabet: each byte is a printable character (itself, or one from U+0100 on).
char32_t byte_letter(uint8_t byte);
/// Appends the letters of all bytes.
void append_byte_letters(std::string_view bytes, std::string& out);
/// The bytes that the letters of `text` stand for; false where a letter stands for none, and `out` is as it was.
bool append_letter_bytes(std::string_view text, std::string& out);

}  // namespace kaon
