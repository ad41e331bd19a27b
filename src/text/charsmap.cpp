// SentencePiece's table of replacements: u32 size of the trie in bytes, a double-array trie (u32 units of the Darts
// kind), and the replacements, each ending in NUL. All little-endian.
#include <bit>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "base/utf8.h"
#include "text/normalizer.h"

namespace kaon {

namespace {

class Charsmap {
 public:
  Charsmap(std::string bytes, const std::string& where) : bytes_(std::move(bytes)) {
    uint32_t size = 0;
    if (bytes_.size() < sizeof size) fail(ErrorCode::CorruptFile, where, "the charsmap has no header");
    std::memcpy(&size, bytes_.data(), sizeof size);
    if (size > bytes_.size() - sizeof size || size % sizeof(uint32_t) != 0) {
      fail(ErrorCode::CorruptFile, where, "the charsmap's trie of {} bytes does not fit its {} bytes", size,
           bytes_.size());
    }
    units_.resize(size / sizeof(uint32_t));
    if (size > 0) std::memcpy(units_.data(), bytes_.data() + sizeof size, size);
    replacements_ = std::string_view(bytes_).substr(sizeof size + size);
    if (find_invalid_utf8(replacements_) != std::string_view::npos) {
      fail(ErrorCode::CorruptFile, where, "the charsmap's replacements are not UTF-8");
    }
  }

  struct Match {
    size_t length = 0;  ///< 0: nothing matches
    std::string_view replacement;
  };

  /// The shortest or the longest key that `text` begins with.
  Match find(std::string_view text, bool longest) const {
    Match match;
    if (units_.empty()) return match;
    size_t at = offset(units_[0]);
    for (size_t i = 0; i < text.size(); ++i) {
      const auto byte = static_cast<uint8_t>(text[i]);
      at ^= byte;
      if (at >= units_.size()) break;
      const uint32_t unit = units_[at];
      if ((unit & 0x800000FFU) != byte) break;
      at ^= offset(unit);
      if ((unit >> 8 & 1) == 0) continue;
      // A broken table's key may end within a character, which must not be cut.
      if (i + 1 < text.size() && (static_cast<uint8_t>(text[i + 1]) & 0xC0) == 0x80) continue;
      if (at >= units_.size()) break;
      const size_t value = units_[at] & 0x7FFFFFFFU;
      if (value >= replacements_.size()) break;
      const std::string_view rest = replacements_.substr(value);
      match = {i + 1, rest.substr(0, rest.find('\0'))};
      // A replacement that starts within a character is a broken table's.
      if (!match.replacement.empty() && utf8_length(match.replacement) == 0) match.replacement = {};
      if (!longest) break;
    }
    return match;
  }

 private:
  static size_t offset(uint32_t unit) { return size_t{unit >> 10} << ((unit & (1U << 9)) >> 6); }

  std::string bytes_;
  std::vector<uint32_t> units_;
  std::string_view replacements_;
};

class CharsmapNormalizer : public Normalizer {
 public:
  CharsmapNormalizer(std::string bytes, CharsmapUse use, const std::string& where)
      : map_(std::move(bytes), where), use_(use) {}

  void apply(std::string& text) const override {
    std::string out;
    out.reserve(text.size());
    std::string_view rest = text;
    while (!rest.empty()) {
      if (use_ == CharsmapUse::LongestMatch) {
        const Charsmap::Match match = map_.find(rest, true);
        const size_t length = match.length > 0 ? match.length : utf8_length(rest);
        out += match.length > 0 ? match.replacement : rest.substr(0, length);
        rest.remove_prefix(length);
      } else {
        const size_t length = grapheme_length(rest);
        append_grapheme(rest.substr(0, length), out);
        rest.remove_prefix(length);
      }
    }
    text = std::move(out);
  }

 private:
  /// A short grapheme is looked up whole, where its shortest key counts for all of it; else each character.
  void append_grapheme(std::string_view grapheme, std::string& out) const {
    if (grapheme.size() < 6) {
      const Charsmap::Match match = map_.find(grapheme, false);
      if (match.length > 0) {
        out += match.replacement;
        return;
      }
    }
    while (!grapheme.empty()) {
      const std::string_view letter = grapheme.substr(0, utf8_length(grapheme));
      const Charsmap::Match match = map_.find(letter, false);
      out += match.length > 0 ? match.replacement : letter;
      grapheme.remove_prefix(letter.size());
    }
  }

  Charsmap map_;
  CharsmapUse use_;
};

}  // namespace

NormalizerPtr make_charsmap(std::string bytes, CharsmapUse use, const std::string& where) {
  return std::make_unique<CharsmapNormalizer>(std::move(bytes), use, where);
}

}  // namespace kaon
