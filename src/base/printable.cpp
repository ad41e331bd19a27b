#include "base/printable.h"

#include <fmt/format.h>

#include "base/utf8.h"

namespace kaon {

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    std::string_view rest = text;
    const char32_t character = length == 0 ? 0 : take_utf8(rest);
    const bool control =
        (character < 0x20 && character != '\n' && character != '\t') || (character >= 0x7F && character < 0xA0);
    const std::string_view here = text.substr(0, length == 0 ? 1 : length);
    for (const char byte : here) {
      if (control) {
        out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
      } else {
        out += byte;
      }
    }
    text.remove_prefix(here.size());
  }
  return out;
}

}  // namespace kaon
