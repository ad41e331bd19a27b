#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace kaon {

using TokenIds = std::vector<int32_t>;

/// The pieces of a model by number and by text.
class Vocab {
 public:
  Vocab() = default;
  /// By number. Of two equal pieces the later keeps the text, as a map that is filled in order does.
  explicit Vocab(std::vector<std::string> pieces);

  int64_t size() const { return static_cast<int64_t>(pieces_.size()); }
  const std::string& piece(int32_t id) const { return pieces_[static_cast<size_t>(id)]; }
  /// -1 where there is none.
  int32_t find(std::string_view piece) const {
    const auto it = ids_.find(piece);
    return it == ids_.end() ? -1 : it->second;
  }
  const std::vector<std::string>& pieces() const { return pieces_; }

 private:
  struct Hash {
    using is_transparent = void;  // NOLINT(readability-identifier-naming)
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  std::vector<std::string> pieces_;  ///< "" for a number that nothing has
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;
};

/// Numbers of "<0x00>" … "<0xFF>", -1 for those that are missing.
std::vector<int32_t> byte_pieces(const Vocab& vocab);

/// Buffers that encoding reuses from word to word.
struct WordScratch {
  struct Pair {
    uint32_t rank;
    int32_t merged;
  };
  struct Candidate {
    uint32_t rank;
    uint32_t at;
    int32_t merged;
    int32_t left;   ///< what stood at `at` when the candidate was made
    int32_t right;  ///< and after it
  };
  std::vector<int32_t> symbols;
  std::vector<Pair> pairs;
  std::vector<Candidate> heap;
  std::vector<int32_t> next, previous;
  std::vector<double> scores;
  std::vector<int32_t> starts, ids;
};

/// Turns one word (a piece of text that the pre-tokenizer left) into numbers.
class WordModel {
 public:
  virtual ~WordModel() = default;
  virtual const Vocab& vocab() const = 0;
  /// Appends to `out`. `word` is valid UTF-8 and not empty.
  virtual void encode(std::string_view word, WordScratch& scratch, TokenIds& out) const = 0;
  /// A character such that a word may be cut before it, where another one precedes it, without changing the result.
  /// Empty where no such character is known.
  virtual std::string_view safe_cut() const { return {}; }
};

}  // namespace kaon
