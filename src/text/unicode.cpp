#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/utf8.h"

namespace kaon {

namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool between(char32_t c, char32_t first, char32_t last) { return c >= first && c <= last; }

bool is_ascii_punctuation(char32_t c) {
  return between(c, '!', '/') || between(c, ':', '@') || between(c, '[', '`') || between(c, '{', '~');
}

}  // namespace

bool is_whitespace(char32_t c) {
  if (c < 0x80) return c == ' ' || between(c, '\t', '\r');
  if (c == 0x85) return true;
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_ZS || kind == UTF8PROC_CATEGORY_ZL || kind == UTF8PROC_CATEGORY_ZP;
}

bool is_punctuation(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO;
}

bool is_bert_punctuation(char32_t c) { return is_ascii_punctuation(c) || is_punctuation(c); }

bool is_nonspacing_mark(char32_t c) { return category(c) == UTF8PROC_CATEGORY_MN; }

bool is_mark(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_MN && kind <= UTF8PROC_CATEGORY_ME;
}

bool is_other(char32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_CC || kind == UTF8PROC_CATEGORY_CF || kind == UTF8PROC_CATEGORY_CO;
}

bool is_numeric(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
}

bool is_word(char32_t c) {
  const auto kind = category(c);
  if (kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_NL) return true;  // letters, marks, Nd, Nl
  // Joiners, and the symbols that are alphabetic: letters in circles and squares.
  return kind == UTF8PROC_CATEGORY_PC || between(c, 0x200C, 0x200D) || between(c, 0x24B6, 0x24E9) ||
         between(c, 0x1F130, 0x1F149) || between(c, 0x1F150, 0x1F169) || between(c, 0x1F170, 0x1F189);
}

bool is_cjk(char32_t c) {
  return between(c, 0x4E00, 0x9FFF) || between(c, 0x3400, 0x4DBF) || between(c, 0x20000, 0x2A6DF) ||
         between(c, 0x2A700, 0x2B73F) || between(c, 0x2B740, 0x2B81F) || between(c, 0x2B920, 0x2CEAF) ||
         between(c, 0xF900, 0xFAFF) || between(c, 0x2F800, 0x2FA1F);
}

void append_lower(char32_t c, std::string& out) {
  // The one character whose lower case is two.
  if (c == 0x130) {
    out += "i\u0307";
  } else {
    append_utf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
  }
}

char32_t decomposed_base(char32_t c) {
  utf8proc_int32_t buffer[32];
  int boundary = 0;
  const auto count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), buffer, 32, UTF8PROC_DECOMPOSE, &boundary);
  return count > 0 ? static_cast<char32_t>(buffer[0]) : c;
}

std::string normalized(std::string_view text, UnicodeForm form) {
  int options = UTF8PROC_STABLE;
  options |= form == UnicodeForm::Nfc || form == UnicodeForm::Nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == UnicodeForm::Nfkc || form == UnicodeForm::Nfkd) options |= UTF8PROC_COMPAT;
  const bool ascii = std::ranges::all_of(text, [](char c) { return static_cast<uint8_t>(c) < 0x80; });
  if (ascii) return std::string(text);
  utf8proc_uint8_t* result = nullptr;
  const auto length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &result, static_cast<utf8proc_option_t>(options));
  if (length < 0) fail(ErrorCode::Internal, "unicode", "{}", utf8proc_errmsg(length));
  std::string out(reinterpret_cast<const char*>(result), static_cast<size_t>(length));
  std::free(result);  // utf8proc's buffer comes from malloc
  return out;
}

size_t grapheme_length(std::string_view text) {
  std::string_view rest = text;
  char32_t before = take_utf8(rest);
  utf8proc_int32_t state = 0;
  while (!rest.empty()) {
    std::string_view after = rest;
    const char32_t c = take_utf8(after);
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(before), static_cast<utf8proc_int32_t>(c),
                                         &state) != 0) {
      break;
    }
    before = c;
    rest = after;
  }
  return text.size() - rest.size();
}

}  // namespace kaon
