#include "text/pre_tokenizer.h"

#include <algorithm>
#include <ranges>

#include "base/utf8.h"
#include "text/byte_alphabet.h"
#include "text/regex.h"

namespace kaon {

const char* const kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

/// A part of a piece that matches or does not.
struct Part {
  size_t begin, end;
  bool match;
};

/// Puts what `behavior` makes of `parts` (which cover a piece) at the end of `ranges`.
void append_parts(const std::vector<Part>& parts, SplitBehavior behavior, std::vector<Pieces::Range>& ranges) {
  const size_t first = ranges.size();
  bool before = false;
  switch (behavior) {
    case SplitBehavior::Removed:
      for (const Part& part : parts) {
        if (!part.match) ranges.push_back({part.begin, part.end});
      }
      break;
    case SplitBehavior::Isolated:
      for (const Part& part : parts) ranges.push_back({part.begin, part.end});
      break;
    case SplitBehavior::MergedWithPrevious:
      for (const Part& part : parts) {
        if (part.match && !before && ranges.size() > first) {
          ranges.back().end = part.end;
        } else {
          ranges.push_back({part.begin, part.end});
        }
        before = part.match;
      }
      break;
    case SplitBehavior::MergedWithNext:
      for (const Part& part : std::views::reverse(parts)) {
        if (part.match && !before && ranges.size() > first) {
          ranges.back().begin = part.begin;
        } else {
          ranges.push_back({part.begin, part.end});
        }
        before = part.match;
      }
      std::reverse(ranges.begin() + static_cast<int64_t>(first), ranges.end());
      break;
    case SplitBehavior::Contiguous:
      for (const Part& part : parts) {
        if (part.match == before && ranges.size() > first) {
          ranges.back().end = part.end;
        } else {
          ranges.push_back({part.begin, part.end});
        }
        before = part.match;
      }
      break;
  }
}

/// Cuts every piece; `find(piece, add)` calls add(begin, end) for each match in order.
template <typename Find>
void split_pieces(Pieces& pieces, SplitBehavior behavior, bool invert, Find find) {
  std::vector<Pieces::Range> cut;
  cut.reserve(pieces.ranges.size() + pieces.text.size() / 4);
  std::vector<Part> parts;
  bool first = true;
  for (const Pieces::Range& range : pieces.ranges) {
    parts.clear();
    size_t done = range.begin;
    find(pieces.view(range), [&](size_t begin, size_t end) {
      if (range.begin + begin > done) parts.push_back({done, range.begin + begin, invert});
      parts.push_back({range.begin + begin, range.begin + end, !invert});
      done = range.begin + end;
    });
    if (done < range.end) parts.push_back({done, range.end, invert});
    append_parts(parts, behavior, cut);
    if (first && (cut.empty() || cut.front().begin != range.begin)) pieces.starts_text = false;
    first = false;
  }
  pieces.ranges = std::move(cut);
}

/// The same where single characters match.
template <typename Is>
void split_at_characters(Pieces& pieces, SplitBehavior behavior, Is is) {
  split_pieces(pieces, behavior, false, [&](std::string_view piece, auto add) {
    std::string_view rest = piece;
    while (!rest.empty()) {
      const size_t begin = piece.size() - rest.size();
      if (is(take_utf8(rest))) add(begin, piece.size() - rest.size());
    }
  });
}

/// Writes every piece anew: `write(piece, index, out)` appends it.
template <typename Write>
void rewrite_pieces(Pieces& pieces, Write write) {
  std::string out;
  out.reserve(pieces.text.size() + 16);
  for (size_t i = 0; i < pieces.ranges.size(); ++i) {
    const size_t begin = out.size();
    write(pieces.view(pieces.ranges[i]), i, out);
    pieces.ranges[i] = {begin, out.size()};
  }
  pieces.storage = std::move(out);
  pieces.text = pieces.storage;
}

class Sequence : public PreTokenizer {
 public:
  explicit Sequence(std::vector<PreTokenizerPtr> parts) : parts_(std::move(parts)) {}
  void apply(Pieces& pieces) const override {
    for (const PreTokenizerPtr& part : parts_) part->apply(pieces);
  }

 private:
  std::vector<PreTokenizerPtr> parts_;
};

class Split : public PreTokenizer {
 public:
  Split(const std::string& pattern, SplitBehavior behavior, bool invert, const std::string& where)
      : regex_(pattern, where), behavior_(behavior), invert_(invert) {}

  void apply(Pieces& pieces) const override {
    Regex::Matcher matcher(regex_);
    split_pieces(pieces, behavior_, invert_, [&](std::string_view piece, auto add) {
      for (size_t at = 0; at < piece.size();) {
        const Regex::Match match = matcher.find(piece, at);
        if (!match.found()) break;
        if (match.end > match.begin) {
          add(match.begin, match.end);
          at = match.end;
        } else {
          at = match.end == piece.size() ? match.end : match.end + utf8_length(piece.substr(match.end));
        }
      }
    });
  }

 private:
  Regex regex_;
  SplitBehavior behavior_;
  bool invert_;
};

class SplitText : public PreTokenizer {
 public:
  SplitText(std::string what, SplitBehavior behavior, bool invert)
      : what_(std::move(what)), behavior_(behavior), invert_(invert) {}
  void apply(Pieces& pieces) const override {
    split_pieces(pieces, behavior_, invert_, [&](std::string_view piece, auto add) {
      if (what_.empty()) return;
      for (size_t at = piece.find(what_); at != std::string_view::npos; at = piece.find(what_, at + what_.size())) {
        add(at, at + what_.size());
      }
    });
  }

 private:
  std::string what_;
  SplitBehavior behavior_;
  bool invert_;
};

class ByteLevel : public PreTokenizer {
 public:
  ByteLevel(bool add_prefix_space, bool use_regex, bool letters)
      : add_prefix_space_(add_prefix_space),
        use_regex_(use_regex),
        letters_(letters),
        split_(kGpt2Pattern, SplitBehavior::Isolated, false, "ByteLevel") {}

  void apply(Pieces& pieces) const override {
    const auto lacks_space = [&](const Pieces::Range& range) { return pieces.text[range.begin] != ' '; };
    if (add_prefix_space_ && std::ranges::any_of(pieces.ranges, lacks_space)) {
      rewrite_pieces(pieces, [](std::string_view piece, size_t, std::string& out) {
        if (!piece.starts_with(' ')) out += ' ';
        out += piece;
      });
    }
    if (use_regex_) split_.apply(pieces);
    if (letters_) {
      rewrite_pieces(pieces, [](std::string_view piece, size_t, std::string& out) { append_byte_letters(piece, out); });
    }
  }

 private:
  bool add_prefix_space_, use_regex_, letters_;
  Split split_;
};

class Metaspace : public PreTokenizer {
 public:
  Metaspace(std::string replacement, PrependScheme prepend, bool split)
      : replacement_(std::move(replacement)), prepend_(prepend), split_(split) {}

  void apply(Pieces& pieces) const override {
    rewrite_pieces(pieces, [&](std::string_view piece, size_t index, std::string& out) {
      const bool wanted =
          prepend_ == PrependScheme::Always || (prepend_ == PrependScheme::First && index == 0 && pieces.starts_text);
      if (wanted && !piece.starts_with(' ') && !piece.starts_with(replacement_)) out += replacement_;
      for (const char c : piece) {
        if (c == ' ') {
          out += replacement_;
        } else {
          out += c;
        }
      }
    });
    if (split_) SplitText(replacement_, SplitBehavior::MergedWithNext, false).apply(pieces);
  }

 private:
  std::string replacement_;
  PrependScheme prepend_;
  bool split_;
};

/// A PreTokenizer of a function.
template <typename F>
class Applied : public PreTokenizer {
 public:
  explicit Applied(F function) : function_(std::move(function)) {}
  void apply(Pieces& pieces) const override { function_(pieces); }

 private:
  F function_;
};

template <typename F>
PreTokenizerPtr applied(F function) {
  return std::make_unique<Applied<F>>(std::move(function));
}

}  // namespace

PreTokenizerPtr make_pre_tokenizer_sequence(std::vector<PreTokenizerPtr> parts) {
  return std::make_unique<Sequence>(std::move(parts));
}

PreTokenizerPtr make_split(const Pattern& pattern, SplitBehavior behavior, bool invert, const std::string& where) {
  if (pattern.is_regex) return std::make_unique<Split>(pattern.text, behavior, invert, where);
  return std::make_unique<SplitText>(pattern.text, behavior, invert);
}

PreTokenizerPtr make_byte_level(bool add_prefix_space, bool use_regex, bool letters) {
  return std::make_unique<ByteLevel>(add_prefix_space, use_regex, letters);
}

PreTokenizerPtr make_metaspace(std::string replacement, PrependScheme prepend, bool split) {
  return std::make_unique<Metaspace>(std::move(replacement), prepend, split);
}

PreTokenizerPtr make_whitespace() {
  return std::make_unique<Split>(
      R"([\p{alpha}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]+|[^\p{alpha}\p{M}\p{Nd}\p{Pc}\p{Join_Control}\s]+)",
      SplitBehavior::Removed, true, "Whitespace");
}

PreTokenizerPtr make_whitespace_split() {
  return applied([](Pieces& pieces) { split_at_characters(pieces, SplitBehavior::Removed, is_whitespace); });
}

PreTokenizerPtr make_bert_pre_tokenizer() {
  return applied([](Pieces& pieces) {
    split_at_characters(pieces, SplitBehavior::Removed, is_whitespace);
    split_at_characters(pieces, SplitBehavior::Isolated, is_bert_punctuation);
  });
}

PreTokenizerPtr make_digits(bool individual) {
  return applied([individual](Pieces& pieces) {
    split_at_characters(pieces, individual ? SplitBehavior::Isolated : SplitBehavior::Contiguous, is_numeric);
  });
}

PreTokenizerPtr make_punctuation(SplitBehavior behavior) {
  return applied([behavior](Pieces& pieces) { split_at_characters(pieces, behavior, is_bert_punctuation); });
}

}  // namespace kaon
