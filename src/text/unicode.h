#pragma once
#include <string>
#include <string_view>

namespace kaon {

/// Unicode's White_Space.
bool is_whitespace(char32_t c);
/// General category P*.
bool is_punctuation(char32_t c);
/// P*, or what ASCII calls punctuation ('$', '+', '~' …).
bool is_bert_punctuation(char32_t c);
/// Mn.
bool is_nonspacing_mark(char32_t c);
/// M*.
bool is_mark(char32_t c);
/// Cc, Cf, Co: control, format and private use.
bool is_other(char32_t c);
/// N*.
bool is_numeric(char32_t c);
/// What a regular expression's \w means: alphabetic, marks, decimal digits, connectors, joiners.
bool is_word(char32_t c);
/// The ideographs that BERT sets apart.
bool is_cjk(char32_t c);

/// The character in lower case, each on its own (no final sigma).
void append_lower(char32_t c, std::string& out);
/// The first character of its canonical decomposition.
char32_t decomposed_base(char32_t c);

enum class UnicodeForm { Nfc, Nfd, Nfkc, Nfkd };
/// `text` is valid UTF-8.
std::string normalized(std::string_view text, UnicodeForm form);

/// Bytes of the first grapheme cluster of valid UTF-8 (not empty).
size_t grapheme_length(std::string_view text);

}  // namespace kaon
