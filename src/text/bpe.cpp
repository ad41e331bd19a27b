#include "text/bpe.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/utf8.h"
#include "text/byte_alphabet.h"

namespace kaon {

namespace {

constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();
constexpr std::string_view kWordStart = "\u2581";
/// Up to so many symbols, looking at all pairs for each merge is faster than a heap.
constexpr size_t kShortWord = 40;

using Pair = WordScratch::Pair;

/// (left, right) → rank and result; open addressing.
class PairTable {
 public:
  explicit PairTable(size_t count = 0) : slots_(std::bit_ceil(std::max<size_t>(count * 2, 16))) {}

  void set(int32_t left, int32_t right, Pair pair) {
    Slot& slot = slots_[find_slot(key_of(left, right))];
    slot = {key_of(left, right), pair};
  }
  Pair find(int32_t left, int32_t right) const { return slots_[find_slot(key_of(left, right))].pair; }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Slot {
    uint64_t key = kEmpty;
    Pair pair{kNoRank, -1};
  };

  static uint64_t key_of(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  size_t find_slot(uint64_t key) const {
    const size_t mask = slots_.size() - 1;
    const uint64_t mixed = key * 0x9E3779B97F4A7C15U;
    size_t at = static_cast<size_t>(mixed ^ mixed >> 32) & mask;
    while (slots_[at].key != key && slots_[at].key != kEmpty) at = (at + 1) & mask;
    return at;
  }

  std::vector<Slot> slots_;
};

class Bpe : public WordModel {
 public:
  Bpe(Vocab vocab, PairTable pairs, std::unordered_map<std::string, int32_t> letters, const BpeOptions& options,
      bool cut)
      : vocab_(std::move(vocab)),
        pairs_(std::move(pairs)),
        extra_letters_(std::move(letters)),
        options_(options),
        byte_pieces_(byte_pieces(vocab_)),
        cut_(cut) {
    extra_names_.resize(extra_letters_.size());
    for (const auto& [letter, id] : extra_letters_) extra_names_[static_cast<size_t>(id - vocab_.size())] = letter;
    for (size_t byte = 0; byte < 256; ++byte) {
      std::string letter;
      append_utf8(options.bytes ? byte_letter(static_cast<uint8_t>(byte)) : static_cast<char32_t>(byte), letter);
      bytes_[byte] = letter_id(letter);
    }
  }

  const Vocab& vocab() const override { return vocab_; }
  std::string_view safe_cut() const override { return cut_ ? kWordStart : std::string_view(); }

  void encode(std::string_view word, WordScratch& scratch, TokenIds& out) const override {
    if (options_.whole_words) {
      const int32_t whole = whole_word(word);
      if (whole >= 0) {
        out.push_back(whole);
        return;
      }
    }
    scratch.symbols.clear();
    if (options_.bytes) {
      split_bytes(word, scratch.symbols);
    } else {
      split_letters(word, scratch.symbols);
    }
    if (scratch.symbols.size() <= kShortWord) {
      merge_short(scratch);
    } else {
      merge_long(scratch);
    }
    if (extra_letters_.empty()) {
      out.insert(out.end(), scratch.symbols.begin(), scratch.symbols.end());
    } else {
      for (const int32_t symbol : scratch.symbols) append_symbol(symbol, out);
    }
  }

 private:
  int32_t whole_word(std::string_view word) const {
    if (!options_.bytes) return vocab_.find(word);
    std::string letters;
    append_byte_letters(word, letters);
    return vocab_.find(letters);
  }

  int32_t letter_id(std::string_view letter) const {
    const int32_t id = vocab_.find(letter);
    if (id >= 0 || extra_letters_.empty()) return id;
    const auto extra = extra_letters_.find(std::string(letter));
    return extra == extra_letters_.end() ? -1 : extra->second;
  }

  void split_bytes(std::string_view word, std::vector<int32_t>& symbols) const {
    bool unknown_before = false;
    for (const char byte : word) {
      const int32_t id = bytes_[static_cast<uint8_t>(byte)];
      if (id >= 0) {
        symbols.push_back(id);
      } else if (options_.unknown >= 0 && !(options_.fuse_unknown && unknown_before)) {
        symbols.push_back(options_.unknown);
      }
      unknown_before = id < 0;
    }
  }

  void split_letters(std::string_view word, std::vector<int32_t>& symbols) const {
    std::string decorated;
    bool pending = false;  // an unknown piece that is not written yet
    const auto flush = [&] {
      if (pending) symbols.push_back(options_.unknown);
      pending = false;
    };
    for (size_t at = 0; at < word.size();) {
      const size_t length = std::max<size_t>(utf8_length(word.substr(at)), 1);
      std::string_view letter = word.substr(at, length);
      const bool prefix = at > 0 && !options_.continuing_prefix.empty();
      const bool suffix = at + length == word.size() && !options_.end_suffix.empty();
      int32_t id = -1;
      if (prefix || suffix) {
        decorated = prefix ? options_.continuing_prefix : std::string();
        decorated += letter;
        if (suffix) decorated += options_.end_suffix;
        letter = decorated;
        id = vocab_.find(letter);
      } else {
        id = length == 1 ? bytes_[static_cast<uint8_t>(letter[0])] : letter_id(letter);
      }
      at += length;
      if (id >= 0) {
        flush();
        symbols.push_back(id);
      } else if (!fall_back(letter, symbols) && options_.unknown >= 0) {
        if (pending && !options_.fuse_unknown) flush();
        pending = true;
      }
    }
    flush();
  }

  bool fall_back(std::string_view letter, TokenIds& out) const {
    if (!options_.byte_fallback) return false;
    const auto piece_of = [&](char byte) { return byte_pieces_[static_cast<uint8_t>(byte)]; };
    if (std::ranges::any_of(letter, [&](char byte) { return piece_of(byte) < 0; })) return false;
    for (const char byte : letter) out.push_back(piece_of(byte));
    return true;
  }

  /// A letter that is in pieces but is none itself stayed alone.
  void append_symbol(int32_t symbol, TokenIds& out) const {
    if (symbol < vocab_.size()) {
      out.push_back(symbol);
      return;
    }
    const std::string_view letter = extra_names_[static_cast<size_t>(symbol - vocab_.size())];
    if (!fall_back(letter, out) && options_.unknown >= 0) out.push_back(options_.unknown);
  }

  void merge_short(WordScratch& scratch) const {
    std::vector<int32_t>& symbols = scratch.symbols;
    if (symbols.size() < 2) return;
    std::array<Pair, kShortWord> pairs;
    size_t count = symbols.size() - 1;  // of pairs
    for (size_t i = 0; i < count; ++i) pairs[i] = pairs_.find(symbols[i], symbols[i + 1]);
    while (count > 0) {
      size_t best = 0;
      for (size_t i = 1; i < count; ++i) best = pairs[i].rank < pairs[best].rank ? i : best;
      if (pairs[best].rank == kNoRank) break;
      symbols[best] = pairs[best].merged;
      std::copy(symbols.begin() + static_cast<int64_t>(best) + 2, symbols.begin() + static_cast<int64_t>(count) + 1,
                symbols.begin() + static_cast<int64_t>(best) + 1);
      std::copy(pairs.begin() + best + 1, pairs.begin() + count, pairs.begin() + best);
      --count;
      if (best > 0) pairs[best - 1] = pairs_.find(symbols[best - 1], symbols[best]);
      if (best < count) pairs[best] = pairs_.find(symbols[best], symbols[best + 1]);
    }
    symbols.resize(count + 1);
  }

  void merge_long(WordScratch& scratch) const {
    std::vector<int32_t>& symbols = scratch.symbols;
    const auto count = static_cast<int32_t>(symbols.size());
    scratch.next.resize(symbols.size());
    scratch.previous.resize(symbols.size());
    std::iota(scratch.next.begin(), scratch.next.end(), 1);
    std::iota(scratch.previous.begin(), scratch.previous.end(), -1);
    scratch.heap.clear();
    const auto later = [](const WordScratch::Candidate& a, const WordScratch::Candidate& b) {
      return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
    };
    const auto symbol = [&](int32_t at) -> int32_t& { return symbols[static_cast<size_t>(at)]; };
    const auto next = [&](int32_t at) -> int32_t& { return scratch.next[static_cast<size_t>(at)]; };
    const auto candidate = [&](int32_t left, int32_t right) {
      const Pair pair = pairs_.find(symbol(left), symbol(right));
      return WordScratch::Candidate{pair.rank, static_cast<uint32_t>(left), pair.merged, symbol(left), symbol(right)};
    };
    for (int32_t i = 0; i + 1 < count; ++i) {
      const auto made = candidate(i, i + 1);
      if (made.rank != kNoRank) scratch.heap.push_back(made);
    }
    std::ranges::make_heap(scratch.heap, later);
    const auto offer = [&](int32_t left, int32_t right) {
      const auto made = candidate(left, right);
      if (made.rank == kNoRank) return;
      scratch.heap.push_back(made);
      std::ranges::push_heap(scratch.heap, later);
    };
    while (!scratch.heap.empty()) {
      const WordScratch::Candidate top = scratch.heap.front();
      std::ranges::pop_heap(scratch.heap, later);
      scratch.heap.pop_back();
      const auto left = static_cast<int32_t>(top.at);
      const int32_t right = next(left);
      // A candidate goes stale when one of its sides was merged.
      if (symbol(left) != top.left || right >= count || symbol(right) != top.right) continue;
      symbol(left) = top.merged;
      symbol(right) = -1;
      next(left) = next(right);
      if (next(left) < count) {
        scratch.previous[static_cast<size_t>(next(left))] = left;
        offer(left, next(left));
      }
      const int32_t before = scratch.previous[static_cast<size_t>(left)];
      if (before >= 0) offer(before, left);
    }
    std::erase(symbols, -1);
  }

  Vocab vocab_;
  PairTable pairs_;
  std::unordered_map<std::string, int32_t> extra_letters_;  ///< numbers from vocab_.size() on
  std::vector<std::string_view> extra_names_;               ///< the same, by number
  BpeOptions options_;
  std::vector<int32_t> byte_pieces_;
  std::array<int32_t, 256> bytes_{};  ///< by raw byte, or by ASCII character
  bool cut_;
};

/// Whether the mark of a word's start stands within `piece`, after another character.
bool has_start_within(std::string_view piece) {
  for (size_t at = piece.find(kWordStart); at != std::string_view::npos; at = piece.find(kWordStart, at + 1)) {
    if (at > 0 && !piece.substr(0, at).ends_with(kWordStart)) return true;
  }
  return false;
}

bool may_cut(const Vocab& vocab, const BpeOptions& options, const std::vector<bool>& is_result) {
  if (options.whole_words || options.bytes || !options.continuing_prefix.empty() || !options.end_suffix.empty()) {
    return false;
  }
  if (vocab.find(kWordStart) < 0) return false;
  for (int32_t id = 0; id < vocab.size(); ++id) {
    if (is_result[static_cast<size_t>(id)] && has_start_within(vocab.piece(id))) return false;
  }
  return true;
}

}  // namespace

std::unique_ptr<WordModel> make_bpe(Vocab vocab, const std::vector<std::pair<std::string, std::string>>& merges,
                                    const BpeOptions& options, const std::string& where) {
  PairTable pairs(merges.size());
  std::vector<bool> is_result(static_cast<size_t>(vocab.size()));
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const auto known = [&](const std::string& piece) {
      const int32_t id = vocab.find(piece);
      if (id < 0) {
        fail(ErrorCode::InvalidConfig, where, "merge {} ('{}' and '{}'): '{}' is not in the vocabulary", rank, left,
             right, piece);
      }
      return id;
    };
    if (right.size() < options.continuing_prefix.size()) {
      fail(ErrorCode::InvalidConfig, where, "merge {}: '{}' lacks the prefix '{}'", rank, right,
           options.continuing_prefix);
    }
    const int32_t merged = known(left + right.substr(options.continuing_prefix.size()));
    pairs.set(known(left), known(right), {static_cast<uint32_t>(rank), merged});
    is_result[static_cast<size_t>(merged)] = true;
  }
  const bool cut = may_cut(vocab, options, is_result);
  return std::make_unique<Bpe>(std::move(vocab), std::move(pairs), std::unordered_map<std::string, int32_t>(), options,
                               cut);
}

std::unique_ptr<WordModel> make_scored_bpe(Vocab vocab, const std::vector<float>& scores,
                                           const std::vector<bool>& mergeable, const BpeOptions& options) {
  // Equal scores have equal ranks: there the leftmost pair is first.
  std::vector<float> ordered(scores);
  std::ranges::sort(ordered, std::greater<>());
  const auto ranks = std::ranges::unique(ordered);
  ordered.erase(ranks.begin(), ranks.end());
  const auto rank_of = [&](int32_t id) {
    const auto at = std::ranges::lower_bound(ordered, scores[static_cast<size_t>(id)], std::greater<>());
    return static_cast<uint32_t>(at - ordered.begin());
  };

  std::unordered_map<std::string, int32_t> letters;
  struct Row {
    int32_t left, right, merged;
  };
  std::vector<Row> rows;
  for (int32_t id = 0; id < vocab.size(); ++id) {
    const std::string& piece = vocab.piece(id);
    if (!mergeable[static_cast<size_t>(id)] || vocab.find(piece) != id) continue;
    const auto symbol = [&](const std::string& part, bool one_letter) {
      const int32_t known = vocab.find(part);
      if (known >= 0 && (one_letter || mergeable[static_cast<size_t>(known)])) return known;
      if (!one_letter) return -1;
      const auto next = static_cast<int32_t>(vocab.size() + static_cast<int64_t>(letters.size()));
      return letters.emplace(part, next).first->second;
    };
    const size_t first = std::max<size_t>(utf8_length(piece), 1);
    for (size_t cut = first; cut < piece.size(); cut += std::max<size_t>(utf8_length(piece.substr(cut)), 1)) {
      const size_t last = std::max<size_t>(utf8_length(std::string_view(piece).substr(cut)), 1);
      const int32_t left = symbol(piece.substr(0, cut), cut == first);
      const int32_t right = symbol(piece.substr(cut), cut + last == piece.size());
      if (left >= 0 && right >= 0) rows.push_back({left, right, id});
    }
  }
  PairTable pairs(rows.size());
  for (const Row& row : rows) pairs.set(row.left, row.right, {rank_of(row.merged), row.merged});
  const bool cut = may_cut(vocab, options, mergeable);
  return std::make_unique<Bpe>(std::move(vocab), std::move(pairs), std::move(letters), options, cut);
}

}  // namespace kaon
