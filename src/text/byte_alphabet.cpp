#include "text/byte_alphabet.h"

#include <array>

#include "base/utf8.h"

namespace kaon {

namespace {

constexpr char32_t kLetters = 0x100 + 68;  // one past the last letter: 68 bytes are not printable

bool stands_for_itself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

struct Tables {
  std::array<char32_t, 256> letters{};
  std::array<int16_t, kLetters> bytes{};

  Tables() {
    bytes.fill(-1);
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const char32_t letter = stands_for_itself(byte) ? static_cast<char32_t>(byte) : next++;
      letters[static_cast<size_t>(byte)] = letter;
      bytes[letter] = static_cast<int16_t>(byte);
    }
  }
};

const Tables& tables() {
  static const Tables tables;
  return tables;
}

}  // namespace

char32_t byte_letter(uint8_t byte) { return tables().letters[byte]; }

void append_byte_letters(std::string_view bytes, std::string& out) {
  for (const char byte : bytes) append_utf8(byte_letter(static_cast<uint8_t>(byte)), out);
}

bool append_letter_bytes(std::string_view text, std::string& out) {
  const size_t before = out.size();
  while (!text.empty()) {
    const char32_t letter = take_utf8(text);
    const int16_t byte = letter < kLetters ? tables().bytes[letter] : int16_t{-1};
    if (byte < 0) {
      out.resize(before);
      return false;
    }
    out += static_cast<char>(byte);
  }
  return true;
}

}  // namespace kaon
