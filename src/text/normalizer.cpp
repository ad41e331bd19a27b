#include "text/normalizer.h"

#include "base/utf8.h"
#include "text/byte_alphabet.h"
#include "text/regex.h"

namespace kaon {

namespace {

/// A Normalizer of a function.
template <typename F>
class Applied : public Normalizer {
 public:
  explicit Applied(F function) : function_(std::move(function)) {}
  void apply(std::string& text) const override { function_(text); }

 private:
  F function_;
};

template <typename F>
NormalizerPtr applied(F function) {
  return std::make_unique<Applied<F>>(std::move(function));
}

/// A Normalizer that appends what becomes of each character.
template <typename F>
NormalizerPtr each_character(F function) {
  return applied([function](std::string& text) {
    std::string out;
    out.reserve(text.size());
    std::string_view rest = text;
    while (!rest.empty()) function(take_utf8(rest), out);
    text = std::move(out);
  });
}

void replace_text(std::string& text, const std::string& what, const std::string& content) {
  size_t at = text.find(what);
  if (at == std::string::npos) return;
  std::string out;
  out.reserve(text.size());
  size_t done = 0;
  for (; at != std::string::npos; at = text.find(what, done)) {
    out.append(text, done, at - done).append(content);
    done = at + what.size();
  }
  text = out.append(text, done);
}

void replace_matches(std::string& text, const Regex& regex, const std::string& content) {
  if (text.empty()) return;
  Regex::Matcher matcher(regex);
  std::string out;
  size_t done = 0;
  for (size_t at = 0; at <= text.size();) {
    const Regex::Match match = matcher.find(text, at);
    if (!match.found()) break;
    out.append(text, done, match.begin - done).append(content);
    done = match.end;
    at = match.end;
    if (match.end == match.begin && at < text.size()) at += utf8_length(std::string_view(text).substr(at));
    if (match.end == match.begin && match.end == text.size()) break;
  }
  text = out.append(text, done);
}

void drop_nonspacing_marks(std::string& text) {
  std::string out;
  out.reserve(text.size());
  std::string_view rest = text;
  while (!rest.empty()) {
    const char32_t c = take_utf8(rest);
    if (!is_nonspacing_mark(c)) append_utf8(c, out);
  }
  text = std::move(out);
}

void append_bert_character(const BertNormalizerOptions& options, char32_t c, std::string& out) {
  if (options.clean_text) {
    const bool layout = c == '\t' || c == '\n' || c == '\r';
    if (c == 0 || c == 0xFFFD || (!layout && is_other(c))) return;
    if (is_whitespace(c)) c = ' ';
  }
  const bool apart = options.handle_chinese_chars && is_cjk(c);
  if (apart) out += ' ';
  append_utf8(c, out);
  if (apart) out += ' ';
}

}  // namespace

NormalizerPtr make_normalizer_sequence(std::vector<NormalizerPtr> parts) {
  return applied([parts = std::make_shared<std::vector<NormalizerPtr>>(std::move(parts))](std::string& text) {
    for (const NormalizerPtr& part : *parts) part->apply(text);
  });
}

NormalizerPtr make_unicode_normalizer(UnicodeForm form) {
  return applied([form](std::string& text) { text = normalized(text, form); });
}

NormalizerPtr make_lowercase() {
  return each_character([](char32_t c, std::string& out) { append_lower(c, out); });
}

NormalizerPtr make_strip_accents() {
  return each_character([](char32_t c, std::string& out) {
    if (!is_mark(c)) append_utf8(c, out);
  });
}

NormalizerPtr make_strip(bool left, bool right) {
  return applied([left, right](std::string& text) {
    std::string_view rest = text;
    size_t begin = 0;
    size_t end = 0;  // after the last character that is no space
    bool seen = false;
    while (!rest.empty()) {
      const size_t at = text.size() - rest.size();
      if (is_whitespace(take_utf8(rest))) continue;
      if (!seen) begin = at;
      seen = true;
      end = text.size() - rest.size();
    }
    if (!seen) begin = end = left ? text.size() : 0;
    if (!left) begin = 0;
    if (!right) end = text.size();
    text = text.substr(begin, end - begin);
  });
}

NormalizerPtr make_prepend(std::string prefix) {
  return applied([prefix = std::move(prefix)](std::string& text) {
    if (!text.empty()) text.insert(0, prefix);
  });
}

NormalizerPtr make_replace(const Pattern& pattern, std::string content, const std::string& where) {
  if (!pattern.is_regex) {
    return applied([what = pattern.text, content = std::move(content)](std::string& text) {
      if (!what.empty()) replace_text(text, what, content);
    });
  }
  return applied([regex = std::make_shared<Regex>(pattern.text, where),
                  content = std::move(content)](std::string& text) { replace_matches(text, *regex, content); });
}

NormalizerPtr make_byte_letters() {
  return applied([](std::string& text) {
    std::string out;
    append_byte_letters(text, out);
    text = std::move(out);
  });
}

NormalizerPtr make_nmt() {
  return each_character([](char32_t c, std::string& out) {
    const auto between = [c](char32_t first, char32_t last) { return c >= first && c <= last; };
    const bool removed = between(0x01, 0x08) || c == 0x0B || between(0x0E, 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
    if (removed) return;
    const bool space = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 || between(0x200B, 0x200F) ||
                       c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
    append_utf8(space ? U' ' : c, out);
  });
}

NormalizerPtr make_bert_normalizer(const BertNormalizerOptions& options) {
  return applied([options](std::string& text) {
    if (options.clean_text || options.handle_chinese_chars) {
      std::string out;
      out.reserve(text.size());
      std::string_view rest = text;
      while (!rest.empty()) append_bert_character(options, take_utf8(rest), out);
      text = std::move(out);
    }
    if (options.strip_accents.value_or(options.lowercase)) {
      text = normalized(text, UnicodeForm::Nfd);
      drop_nonspacing_marks(text);
    }
    if (options.lowercase) {
      std::string out;
      out.reserve(text.size());
      std::string_view rest = text;
      while (!rest.empty()) append_lower(take_utf8(rest), out);
      text = std::move(out);
    }
  });
}

NormalizerPtr make_llama_wordpiece_normalizer() {
  return each_character([](char32_t c, std::string& out) {
    c = decomposed_base(c);
    if (is_whitespace(c)) {
      out += ' ';
    } else if (c != 0 && c != 0xFFFD && !is_other(c)) {
      const bool apart = is_punctuation(c) || (c < 0x7F && is_bert_punctuation(c)) || is_cjk(c);
      if (apart) out += ' ';
      append_lower(c, out);
      if (apart) out += ' ';
    }
  });
}

NormalizerPtr make_collapse_spaces() {
  return applied([](std::string& text) {
    std::string out;
    out.reserve(text.size());
    for (const char c : text) {
      if (c != ' ' || (!out.empty() && out.back() != ' ')) out += c;
    }
    if (out.ends_with(' ')) out.pop_back();
    text = std::move(out);
  });
}

}  // namespace kaon
