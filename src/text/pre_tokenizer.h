#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/normalizer.h"

namespace kaon {

/// Text on its way to being cut into words.
struct Pieces {
  struct Range {
    size_t begin, end;
  };
  std::string_view text;      ///< what the ranges lie in
  std::string storage;        ///< holds the text once a step has changed it
  std::vector<Range> ranges;  ///< none of them empty
  bool starts_text = true;    ///< the first one begins where the user's text begins

  std::string_view view(const Range& range) const { return text.substr(range.begin, range.end - range.begin); }
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Pieces& pieces) const = 0;
};

using PreTokenizerPtr = std::unique_ptr<const PreTokenizer>;

/// What becomes of the parts that a pattern matches.
enum class SplitBehavior { Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous };

/// When a metaspace gets a mark in front of it.
enum class PrependScheme { Always, Never, First };

/// GPT-2's way to cut text.
extern const char* const kGpt2Pattern;

PreTokenizerPtr make_pre_tokenizer_sequence(std::vector<PreTokenizerPtr> parts);
PreTokenizerPtr make_split(const Pattern& pattern, SplitBehavior behavior, bool invert, const std::string& where);
/// `letters`: whether bytes become byte_letter's, or are left as they are for a model that takes bytes.
PreTokenizerPtr make_byte_level(bool add_prefix_space, bool use_regex, bool letters);
PreTokenizerPtr make_metaspace(std::string replacement, PrependScheme prepend, bool split);
/// Words and runs of other characters, without the white space.
PreTokenizerPtr make_whitespace();
PreTokenizerPtr make_whitespace_split();
PreTokenizerPtr make_bert_pre_tokenizer();
PreTokenizerPtr make_digits(bool individual);
PreTokenizerPtr make_punctuation(SplitBehavior behavior);

}  // namespace kaon
