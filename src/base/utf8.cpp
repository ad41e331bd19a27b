#include "base/utf8.h"

#include <algorithm>
#include <cstring>

namespace kaon {

namespace {

size_t wanted_length(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead < 0xE0) return 2;
  if ((lead & 0xF0) == 0xE0) return 3;
  return lead >= 0xF0 && lead < 0xF5 ? 4 : 0;
}

/// How many of the first bytes can begin one character: all of it, a part, or none.
size_t begun_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  const size_t wanted = wanted_length(lead);
  if (wanted < 2 || text.size() < 2) return std::min<size_t>(wanted, 1);
  // Overlong forms, surrogates, and what lies beyond U+10FFFF show in the second byte.
  const uint8_t second = byte(1);
  const bool bad = (second & 0xC0) != 0x80 || (lead == 0xE0 && second < 0xA0) || (lead == 0xED && second >= 0xA0) ||
                   (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second >= 0x90);
  if (bad) return 1;
  size_t length = 2;
  while (length < wanted && length < text.size() && (byte(length) & 0xC0) == 0x80) ++length;
  return length;
}

}  // namespace

size_t utf8_length(std::string_view text) {
  const size_t begun = begun_length(text);
  return begun == wanted_length(static_cast<uint8_t>(text[0])) ? begun : 0;
}

size_t find_invalid_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    uint64_t eight = 0;
    if (at + sizeof eight <= text.size()) {
      std::memcpy(&eight, text.data() + at, sizeof eight);
      if ((eight & 0x8080808080808080U) == 0) {
        at += sizeof eight;
        continue;
      }
    }
    const size_t length = utf8_length(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return std::string_view::npos;
}

char32_t take_utf8(std::string_view& text) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<uint8_t>(text[i])); };
  const char32_t lead = byte(0);
  const size_t length = wanted_length(static_cast<uint8_t>(lead));
  char32_t character = lead;
  if (length == 2) character = (lead & 0x1F) << 6 | (byte(1) & 0x3F);
  if (length == 3) character = (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  if (length == 4) character = (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  text.remove_prefix(length);
  return character;
}

void append_utf8(char32_t character, std::string& out) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | (character >> shift & 0x3F)); };
  if (character < 0x80) {
    out += static_cast<char>(character);
  } else if (character < 0x800) {
    out += static_cast<char>(0xC0 | character >> 6);
    tail(0);
  } else if (character < 0x10000) {
    out += static_cast<char>(0xE0 | character >> 12);
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0 | character >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

std::string lossy_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t valid = std::min(find_invalid_utf8(text), text.size());
    out += text.substr(0, valid);
    text.remove_prefix(valid);
    if (text.empty()) break;
    out += "\uFFFD";
    text.remove_prefix(std::max<size_t>(begun_length(text), 1));
  }
  return out;
}

}  // namespace kaon
