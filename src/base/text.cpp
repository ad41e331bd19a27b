#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

namespace kaon {

namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

/// What one character of text may be, at `pattern[at]`: its length there, 0 where `c` is not it.
size_t match_one(std::string_view pattern, size_t at, char c) {
  if (pattern[at] != '[') return pattern[at] == '?' || pattern[at] == c ? 1 : 0;
  size_t p = at + 1;
  const bool inverted = p < pattern.size() && pattern[p] == '!';
  if (inverted) ++p;
  const size_t end = pattern.find(']', p + 1);  // a bracket that comes first is one of the set
  if (end == std::string_view::npos) return c == '[' ? 1 : 0;
  bool inside = false;
  while (p < end) {
    const bool range = p + 2 < end && pattern[p + 1] == '-';
    inside = inside || (range ? pattern[p] <= c && c <= pattern[p + 2] : pattern[p] == c);
    p += range ? 3 : 1;
  }
  return inside != inverted ? end + 1 - at : 0;
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, word.size() / 2) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

bool glob_match(std::string_view pattern, std::string_view text) {
  if (pattern == text) return true;
  size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (const size_t length = p < pattern.size() ? match_one(pattern, p, text[t]) : 0; length > 0) {
      p += length;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::string human_bytes(double bytes) {
  static constexpr std::array<const char*, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

}  // namespace kaon
