#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/unicode.h"

namespace kaon {

/// Changes text before it is cut. Takes and leaves valid UTF-8.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(std::string& text) const = 0;
};

using NormalizerPtr = std::unique_ptr<const Normalizer>;

/// What a Replace or a Split looks for.
struct Pattern {
  std::string text;
  bool is_regex = false;
};

NormalizerPtr make_normalizer_sequence(std::vector<NormalizerPtr> parts);
NormalizerPtr make_unicode_normalizer(UnicodeForm form);
NormalizerPtr make_lowercase();
NormalizerPtr make_strip_accents();
NormalizerPtr make_strip(bool left, bool right);
/// In front of text that is not empty.
NormalizerPtr make_prepend(std::string prefix);
NormalizerPtr make_replace(const Pattern& pattern, std::string content, const std::string& where);
/// Each byte as byte_letter writes it.
NormalizerPtr make_byte_letters();
/// As sentencepiece's training of translation models cleans up.
NormalizerPtr make_nmt();

struct BertNormalizerOptions {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  std::optional<bool> strip_accents;  ///< as `lowercase` where it is not given
  bool lowercase = true;
};
NormalizerPtr make_bert_normalizer(const BertNormalizerOptions& options);

/// llama.cpp's for WordPiece: characters replaced by the base of their decomposition, in lower case; controls removed;
/// spaces around punctuation and ideographs.
NormalizerPtr make_llama_wordpiece_normalizer();

/// How SentencePiece's table of replacements is asked: for whole graphemes as Hugging Face does, or for the longest
/// match at each place as SentencePiece itself.
enum class CharsmapUse { Graphemes, LongestMatch };
/// Throws CorruptFile naming `where` where the bytes are no such table.
NormalizerPtr make_charsmap(std::string bytes, CharsmapUse use, const std::string& where);

/// SentencePiece's treatment of spaces: runs become one and the ends are trimmed where asked.
NormalizerPtr make_collapse_spaces();

}  // namespace kaon
