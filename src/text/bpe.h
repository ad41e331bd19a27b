#pragma once
#include <optional>
#include <utility>

#include "text/word_model.h"

namespace kaon {

struct BpeOptions {
  int32_t unknown = -1;  ///< what a character becomes that is no piece; -1: it is left out
  bool fuse_unknown = false;
  bool byte_fallback = false;  ///< such a character becomes the pieces "<0x…>" of its bytes instead
  bool whole_words = false;    ///< a word that is a piece is not taken apart ("ignore_merges")
  bool bytes = false;          ///< words are raw bytes, the pieces are written in byte_letter's alphabet
  std::string continuing_prefix;
  std::string end_suffix;
};

/// Byte-pair encoding: `merges` are tried in their order. Throws InvalidConfig naming `where` where one speaks of
/// pieces that do not exist.
std::unique_ptr<WordModel> make_bpe(Vocab vocab, const std::vector<std::pair<std::string, std::string>>& merges,
                                    const BpeOptions& options, const std::string& where);

/// SentencePiece's: of all neighbours that together are a piece, those with the highest score are merged first, from
/// left to right. Pieces for which `mergeable` is false are never the result.
std::unique_ptr<WordModel> make_scored_bpe(Vocab vocab, const std::vector<float>& scores,
                                           const std::vector<bool>& mergeable, const BpeOptions& options);

}  // namespace kaon
