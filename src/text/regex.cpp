#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <pcre2.h>

#include <algorithm>
#include <new>

#include "base/error.h"

namespace kaon {

namespace {

[[noreturn]] void refuse(const std::string& pattern, const char* what, const std::string& where) {
  fail(ErrorCode::Unsupported, where, "the regular expression '{}' uses {}", pattern, what);
}

/// Oniguruma's pattern in PCRE2's words: \s and \w are Unicode properties there that PCRE2 defines a little
/// differently.
std::string translate(const std::string& pattern, const std::string& where) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];
      switch (next) {
        case 's': out += "\\p{wspace}"; break;
        case 'S': out += "\\P{wspace}"; break;
        case 'w': out += in_class ? "\\p{alpha}\\p{M}\\p{Nd}\\p{Pc}" : "[\\p{alpha}\\p{M}\\p{Nd}\\p{Pc}]"; break;
        case 'W':
          if (in_class) refuse(pattern, "\\W within a class", where);
          out += "[^\\p{alpha}\\p{M}\\p{Nd}\\p{Pc}]";
          break;
        case 'h':
        case 'H':
        case 'O':
        case 'y':
        case 'Y':
        case 'g':
        case 'k':
        case 'R':
        case 'X':
        case 'K':
        case 'Q':
        case 'E':
        case 'C':
        case 'N':
        case 'v':
        case 'V':
        case 'G': refuse(pattern, "an escape whose meaning differs between Oniguruma and PCRE2", where);
        case 'p':
        case 'P': {
          const size_t end = std::min(pattern.find('}', i), pattern.size() - 1);
          out.append(1, '\\').append(pattern, i, end + 1 - i);
          i = end;
          break;
        }
        default: out.append(1, '\\').append(1, next);
      }
    } else if (in_class) {
      if (c == '[') refuse(pattern, "a class within a class", where);
      if (c == '&' && pattern.compare(i, 2, "&&") == 0) refuse(pattern, "an intersection of classes", where);
      if (c == ']') in_class = false;
      out += c;
    } else {
      if (c == '[') {
        in_class = true;
        out += c;
        if (pattern.compare(i + 1, 1, "^") == 0) out += pattern[++i];
        if (pattern.compare(i + 1, 1, "]") == 0) refuse(pattern, "a class that begins with ']'", where);
        continue;
      }
      if (c == '}' && pattern.compare(i + 1, 1, "+") == 0) refuse(pattern, "a '+' after an interval", where);
      if (c == '(' && pattern.compare(i + 1, 1, "*") == 0) refuse(pattern, "a verb of PCRE2", where);
      out += c;
    }
  }
  return out;
}

pcre2_code* code_of(void* code) { return static_cast<pcre2_code*>(code); }
pcre2_match_data* data_of(void* data) { return static_cast<pcre2_match_data*>(data); }

}  // namespace

Regex::Regex(const std::string& pattern, const std::string& where) : where_(where) {
  const std::string translated = translate(pattern, where);
  int error = 0;
  PCRE2_SIZE at = 0;
  code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                        PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at, nullptr);
  if (code_ == nullptr) {
    PCRE2_UCHAR message[256];
    pcre2_get_error_message(error, message, sizeof message);
    fail(ErrorCode::Unsupported, where, "the regular expression '{}' cannot be used: {}", pattern,
         reinterpret_cast<const char*>(message));
  }
  jit_ = pcre2_jit_compile(code_of(code_), PCRE2_JIT_COMPLETE) == 0;
}

Regex::~Regex() { pcre2_code_free(code_of(code_)); }

Regex::Matcher::Matcher(const Regex& regex) : regex_(regex), data_(pcre2_match_data_create(1, nullptr)) {
  if (data_ == nullptr) throw std::bad_alloc();
}

Regex::Matcher::~Matcher() { pcre2_match_data_free(data_of(data_)); }

Regex::Match Regex::Matcher::find(std::string_view text, size_t start) {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  int result = PCRE2_ERROR_JIT_STACKLIMIT;
  if (regex_.jit_) {
    result = pcre2_jit_match(code_of(regex_.code_), subject, text.size(), start, PCRE2_NO_UTF_CHECK, data_of(data_),
                             nullptr);
  }
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
    result = pcre2_match(code_of(regex_.code_), subject, text.size(), start, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         data_of(data_), nullptr);
  }
  if (result == PCRE2_ERROR_NOMATCH) return {};
  if (result < 0) {
    PCRE2_UCHAR message[256];
    pcre2_get_error_message(result, message, sizeof message);
    fail(ErrorCode::InvalidInput, regex_.where_, "the regular expression gives up on the text at byte {}: {}", start,
         reinterpret_cast<const char*>(message));
  }
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(data_of(data_));
  return {found[0], found[1]};
}

}  // namespace kaon
