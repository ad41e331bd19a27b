#include "text/unigram.h"

#include <algorithm>
#include <limits>
#include <ranges>

#include "base/utf8.h"

namespace kaon {

namespace {

constexpr double kUnknownPenalty = 10;

/// All pieces by their bytes; a node's children lie together, in order.
class PieceTrie {
 public:
  PieceTrie(const Vocab& vocab, const std::vector<bool>& usable) {
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < vocab.size(); ++id) {
      if (usable[static_cast<size_t>(id)] && vocab.find(vocab.piece(id)) == id) ids.push_back(id);
    }
    std::ranges::sort(ids, {}, [&](int32_t id) -> const std::string& { return vocab.piece(id); });
    nodes_.emplace_back();
    std::vector<Span> level{{0, 0, ids.size(), 0}};
    while (!level.empty()) {
      std::vector<Span> next;
      for (const Span& span : level) build(vocab, ids, span, next);
      level = std::move(next);
    }
  }

  /// Calls found(length, id) for every piece that `text` begins with, shortest first.
  template <typename Found>
  void prefixes(std::string_view text, Found found) const {
    size_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const auto first = nodes_.begin() + nodes_[node].children;
      const auto last = first + nodes_[node].count;
      const auto child = std::lower_bound(first, last, static_cast<uint8_t>(text[i]),
                                          [](const Node& a, uint8_t byte) { return a.byte < byte; });
      if (child == last || child->byte != static_cast<uint8_t>(text[i])) return;
      node = static_cast<size_t>(child - nodes_.begin());
      if (child->id >= 0) found(i + 1, child->id);
    }
  }

 private:
  struct Node {
    int32_t children = 0;
    int32_t id = -1;
    uint16_t count = 0;
    uint8_t byte = 0;
  };
  struct Span {
    size_t node, begin, end, depth;  ///< of the sorted pieces that begin like `node`
  };

  void build(const Vocab& vocab, const std::vector<int32_t>& ids, const Span& span, std::vector<Span>& next) {
    size_t at = span.begin;
    const auto piece = [&](size_t i) -> const std::string& { return vocab.piece(ids[i]); };
    if (at < span.end && piece(at).size() == span.depth) nodes_[span.node].id = ids[at++];
    nodes_[span.node].children = static_cast<int32_t>(nodes_.size());
    while (at < span.end) {
      const char byte = piece(at)[span.depth];
      const size_t begin = at;
      while (at < span.end && piece(at)[span.depth] == byte) ++at;
      next.push_back({nodes_.size(), begin, at, span.depth + 1});
      nodes_.push_back({.byte = static_cast<uint8_t>(byte)});
      ++nodes_[span.node].count;
    }
  }

  std::vector<Node> nodes_;
};

class Unigram : public WordModel {
 public:
  Unigram(Vocab vocab, std::vector<double> scores, const std::vector<bool>& usable, const UnigramOptions& options)
      : vocab_(std::move(vocab)),
        scores_(std::move(scores)),
        options_(options),
        byte_pieces_(byte_pieces(vocab_)),
        trie_(vocab_, usable) {
    double least = std::numeric_limits<double>::infinity();
    for (size_t id = 0; id < scores_.size(); ++id) least = usable[id] ? std::min(least, scores_[id]) : least;
    unknown_score_ = least - kUnknownPenalty;
  }

  const Vocab& vocab() const override { return vocab_; }

  void encode(std::string_view word, WordScratch& scratch, TokenIds& out) const override {
    find_best_path(word, scratch);
    // The path runs from the end; unknown characters that follow each other are one piece.
    scratch.symbols.clear();
    size_t end = word.size();
    while (end > 0) {
      size_t begin = static_cast<size_t>(scratch.starts[end]);
      const int32_t id = scratch.ids[end];
      if (id != kNone && id != options_.unknown) {
        scratch.symbols.push_back(id);
      } else {
        while (begin > 0 && is_unknown(scratch.ids[begin])) begin = static_cast<size_t>(scratch.starts[begin]);
        append_unknown(word.substr(begin, end - begin), scratch.symbols);
      }
      end = begin;
    }
    out.insert(out.end(), scratch.symbols.rbegin(), scratch.symbols.rend());
  }

 private:
  static constexpr int32_t kNone = -1;

  bool is_unknown(int32_t id) const { return id == kNone || id == options_.unknown; }

  void find_best_path(std::string_view word, WordScratch& scratch) const {
    scratch.scores.assign(word.size() + 1, 0);
    scratch.starts.assign(word.size() + 1, -1);
    scratch.ids.assign(word.size() + 1, kNone);
    const auto offer = [&](size_t begin, size_t end, int32_t id, double score) {
      if (scratch.starts[end] >= 0 && score <= scratch.scores[end]) return;
      scratch.starts[end] = static_cast<int32_t>(begin);
      scratch.ids[end] = id;
      scratch.scores[end] = score;
    };
    for (size_t at = 0; at < word.size();) {
      const double so_far = scratch.scores[at];
      const size_t letter = std::max<size_t>(utf8_length(word.substr(at)), 1);
      bool covered = false;
      trie_.prefixes(word.substr(at), [&](size_t length, int32_t id) {
        offer(at, at + length, id, scores_[static_cast<size_t>(id)] + so_far);
        covered |= length == letter;
      });
      if (!covered) offer(at, at + letter, kNone, unknown_score_ + so_far);
      at += letter;
    }
  }

  /// Backwards, as the caller's path runs.
  void append_unknown(std::string_view part, TokenIds& reversed) const {
    const int32_t known = vocab_.find(part);
    if (known >= 0) {
      reversed.push_back(known);
      return;
    }
    const auto piece_of = [&](char byte) { return byte_pieces_[static_cast<uint8_t>(byte)]; };
    const bool fall_back =
        options_.byte_fallback && std::ranges::none_of(part, [&](char byte) { return piece_of(byte) < 0; });
    if (!fall_back) {
      if (options_.unknown >= 0) reversed.push_back(options_.unknown);
      return;
    }
    for (const char byte : std::views::reverse(part)) reversed.push_back(piece_of(byte));
  }

  Vocab vocab_;
  std::vector<double> scores_;
  UnigramOptions options_;
  std::vector<int32_t> byte_pieces_;
  PieceTrie trie_;
  double unknown_score_ = 0;
};

}  // namespace

std::unique_ptr<WordModel> make_unigram(Vocab vocab, std::vector<double> scores, const std::vector<bool>& usable,
                                        const UnigramOptions& options) {
  return std::make_unique<Unigram>(std::move(vocab), std::move(scores), usable, options);
}

}  // namespace kaon
