#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace kaon {

/// `text` as valid UTF-8 without control characters: each byte that breaks the rules becomes U+FFFD, each control
/// character a space.
std::string printable_utf8(std::string_view text);

/// The characters of valid UTF-8.
std::vector<std::string_view> utf8_letters(std::string_view text);

}  // namespace kaon
