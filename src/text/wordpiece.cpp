#include "text/wordpiece.h"

#include <algorithm>

namespace kaon {

namespace {

bool continues(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

class WordPiece : public WordModel {
 public:
  WordPiece(Vocab vocab, const WordPieceOptions& options) : vocab_(std::move(vocab)), options_(options) {
    for (const std::string& piece : vocab_.pieces()) longest_ = std::max(longest_, piece.size());
  }

  const Vocab& vocab() const override { return vocab_; }

  void encode(std::string_view word, WordScratch& scratch, TokenIds& out) const override {
    const size_t before = out.size();
    if (options_.longest_word > 0) {
      const auto letters = std::ranges::count_if(word, [](char byte) { return !continues(byte); });
      if (letters > options_.longest_word) {
        out.push_back(options_.unknown);
        return;
      }
    }
    std::string candidate;
    for (size_t at = 0; at < word.size();) {
      const std::string& prefix = at == 0 ? options_.first_prefix : options_.next_prefix;
      candidate.assign(prefix).append(word, at, longest_);
      int32_t found = -1;
      while (candidate.size() > prefix.size()) {
        const size_t end = at + candidate.size() - prefix.size();
        const bool whole = end == word.size() || !continues(word[end]);
        found = whole ? vocab_.find(candidate) : -1;
        if (found >= 0) break;
        candidate.pop_back();
      }
      if (found < 0) {
        out.resize(before);
        out.push_back(options_.unknown);
        return;
      }
      out.push_back(found);
      at += candidate.size() - prefix.size();
    }
  }

 private:
  Vocab vocab_;
  WordPieceOptions options_;
  size_t longest_ = 0;  ///< piece in bytes
};

}  // namespace

std::unique_ptr<WordModel> make_wordpiece(Vocab vocab, const WordPieceOptions& options) {
  return std::make_unique<WordPiece>(std::move(vocab), options);
}

}  // namespace kaon
