#include "report/utf8.h"

#include <algorithm>
#include <cstdint>

#include "base/utf8.h"

namespace kaon {

std::string printable_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = utf8_length(text);
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
    const size_t length = std::max<size_t>(utf8_length(text), 1);
    letters.push_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return letters;
}

}  // namespace kaon
