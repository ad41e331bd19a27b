#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace kaon {

/// The candidate closest to `word` by edit distance, or "" when none is close enough to be a likely typo.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

/// Shell-like match: `*` any run, `?` one character, `[0-9]` and `[!0-9]` one of a set; a whole name matches itself.
bool glob_match(std::string_view pattern, std::string_view text);

/// "1.5 GiB", "12 KiB", "7 B".
std::string human_bytes(double bytes);

}  // namespace kaon
