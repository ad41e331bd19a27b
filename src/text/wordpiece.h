#pragma once
#include "text/word_model.h"

namespace kaon {

struct WordPieceOptions {
  int32_t unknown = 0;
  std::string first_prefix;        ///< what pieces that begin a word begin with
  std::string next_prefix = "##";  ///< and those that go on
  int64_t longest_word = 100;      ///< words of more characters are unknown; 0: none is
};

/// The longest piece that fits, from left to right; a word that cannot be covered is unknown.
std::unique_ptr<WordModel> make_wordpiece(Vocab vocab, const WordPieceOptions& options);

}  // namespace kaon
