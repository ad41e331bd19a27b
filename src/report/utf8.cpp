#include "report/utf8.h"

#include <algorithm>
#include <cstdint>

namespace kaon {

namespace {

/// The length of the character that starts at `text`, or 0 when its bytes are not one.
size_t letter_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xC2 && lead < 0xE0   ? 2
                        : (lead & 0xF0) == 0xE0       ? 3
                        : lead >= 0xF0 && lead < 0xF5 ? 4
                                                      : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and what lies beyond U+10FFFF.
  const uint8_t second = byte(1);
  const bool bad = (lead == 0xE0 && second < 0xA0) || (lead == 0xED && second >= 0xA0) ||
                   (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second >= 0x90);
  return bad ? 0 : length;
}

}  // namespace

std::string printable_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = letter_length(text);
    const auto first = static_cast<uint8_t>(text.front());
    if (length == 0) {
      out += "\uFFFD";
    } else if (first < 0x20 || first == 0x7F) {
      out += ' ';
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

std::vector<std::string_view> utf8_letters(std::string_view text) {
  std::vector<std::string_view> letters;
  while (!text.empty()) {
    const size_t length = std::max<size_t>(letter_length(text), 1);
    letters.push_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return letters;
}

}  // namespace kaon
