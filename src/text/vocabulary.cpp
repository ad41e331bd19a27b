#include "text/vocabulary.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/utf8.h"
#include "text/bpe.h"
#include "text/token_type.h"
#include "text/unigram.h"
#include "text/wordpiece.h"

namespace kaon {

namespace {

constexpr size_t kLongestPiece = 4096;  // bytes; real ones have some hundred

class Maker {
 public:
  Maker(Vocabulary vocabulary, const std::string& where) : vocabulary_(std::move(vocabulary)), where_(where) {}

  TokenizerPtr make() {
    check();
    parts_.where = where_;
    set_special_ids();
    if (vocabulary_.model == "llama") {
      make_llama();
    } else if (vocabulary_.model == "gpt2") {
      make_gpt2();
    } else if (vocabulary_.model == "bert") {
      make_bert();
    } else if (vocabulary_.model == "t5") {
      make_t5();
    } else {
      fail(ErrorCode::Unsupported, where_, "tokenizer.ggml.model is '{}'; llama, gpt2, bert and t5 are known",
           vocabulary_.model);
    }
    return std::make_shared<Tokenizer>(std::move(parts_));
  }

 private:
  void check() const {
    const size_t count = vocabulary_.tokens.size();
    if (count == 0) fail(ErrorCode::InvalidConfig, where_, "tokenizer.ggml.tokens is missing or empty");
    const auto fits = [&](const char* key, size_t size) {
      if (size != 0 && size != count) {
        fail(ErrorCode::InvalidConfig, where_, "tokenizer.ggml.{} has {} elements for {} tokens", key, size, count);
      }
    };
    fits("scores", vocabulary_.scores.size());
    fits("token_type", vocabulary_.types.size());
    for (size_t id = 0; id < count; ++id) {
      const std::string& token = vocabulary_.tokens[id];
      if (token.size() > kLongestPiece) {
        fail(ErrorCode::InvalidConfig, where_, "token {} has {} bytes; at most {} are accepted", id, token.size(),
             kLongestPiece);
      }
      if (find_invalid_utf8(token) != std::string::npos) {
        fail(ErrorCode::InvalidConfig, where_, "token {} is not UTF-8", id);
      }
    }
    if (!std::ranges::all_of(vocabulary_.scores, [](float score) { return std::isfinite(score); })) {
      fail(ErrorCode::InvalidConfig, where_, "tokenizer.ggml.scores holds a number that is not finite");
    }
  }

  std::optional<int32_t> checked(std::optional<int64_t> id, const char* key) const {
    // 0xFFFFFFFF is how some files say none.
    if (!id || *id == 0xFFFFFFFF || *id == -1) return std::nullopt;
    if (*id < 0 || *id >= std::ssize(vocabulary_.tokens)) {
      fail(ErrorCode::InvalidConfig, where_, "tokenizer.ggml.{} is {}, and there are {} tokens", key, *id,
           vocabulary_.tokens.size());
    }
    return static_cast<int32_t>(*id);
  }

  int type(size_t id) const { return vocabulary_.types.empty() ? token_type::kNormal : vocabulary_.types[id]; }

  void set_special_ids() {
    parts_.bos = checked(vocabulary_.bos, "bos_token_id");
    parts_.eos = checked(vocabulary_.eos, "eos_token_id");
    parts_.unknown = checked(vocabulary_.unknown, "unknown_token_id");
    parts_.padding = checked(vocabulary_.padding, "padding_token_id");
    for (size_t id = 0; id < vocabulary_.tokens.size(); ++id) {
      const int kind = type(id);
      if (kind != token_type::kControl && kind != token_type::kUserDefined && kind != token_type::kUnknown) continue;
      if (vocabulary_.tokens[id].empty()) continue;
      parts_.added.push_back({.id = static_cast<int32_t>(id),
                              .content = vocabulary_.tokens[id],
                              .special = kind != token_type::kUserDefined});
    }
  }

  void add_around(bool bos, bool eos) {
    if (vocabulary_.add_bos.value_or(bos) && parts_.bos) parts_.before.push_back(*parts_.bos);
    if (vocabulary_.add_eos.value_or(eos) && parts_.eos) parts_.after.push_back(*parts_.eos);
  }

  void space_parts(bool collapse) {
    std::vector<NormalizerPtr> steps;
    if (!vocabulary_.charsmap.empty()) {
      steps.push_back(make_charsmap(vocabulary_.charsmap, CharsmapUse::LongestMatch, where_));
    }
    if (collapse) steps.push_back(make_collapse_spaces());
    const bool prefix = vocabulary_.add_space_prefix.value_or(true);
    if (prefix) steps.push_back(make_prepend("\u2581"));
    steps.push_back(make_replace({" "}, "\u2581", where_));
    parts_.normalizer = make_normalizer_sequence(std::move(steps));

    std::vector<TokenDecoderPtr> decoders;
    decoders.push_back(make_replace_decoder({"\u2581"}, " ", where_));
    decoders.push_back(make_byte_fallback_decoder());
    decoders.push_back(make_fuse_decoder());
    if (prefix) decoders.push_back(make_strip_decoder(" ", 1, 0));
    parts_.decoder = make_decoder_sequence(std::move(decoders));
  }

  void make_llama() {
    if (vocabulary_.scores.empty()) fail(ErrorCode::InvalidConfig, where_, "tokenizer.ggml.scores is missing");
    space_parts(false);
    BpeOptions options;
    options.byte_fallback = true;
    options.unknown = parts_.unknown.value_or(-1);
    std::vector<bool> mergeable(vocabulary_.tokens.size(), true);
    parts_.model = make_scored_bpe(Vocab(std::move(vocabulary_.tokens)), vocabulary_.scores, mergeable, options);
    add_around(true, false);
  }

  void make_gpt2() {
    if (vocabulary_.merges.empty()) fail(ErrorCode::InvalidConfig, where_, "tokenizer.ggml.merges is missing");
    std::vector<std::pair<std::string, std::string>> merges;
    for (const std::string& merge : vocabulary_.merges) {
      const size_t space = merge.find(' ', 1);
      if (space == std::string::npos) {
        fail(ErrorCode::InvalidConfig, where_, "tokenizer.ggml.merges: '{}' is no pair", merge);
      }
      merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
    }
    std::vector<PreTokenizerPtr> steps;
    if (vocabulary_.add_space_prefix.value_or(false)) steps.push_back(make_byte_level(true, false, false));
    for (const std::string& pattern : pre_tokenizer_patterns(vocabulary_.pre, where_)) {
      steps.push_back(make_split({pattern, true}, SplitBehavior::Isolated, false, where_));
    }
    parts_.pre_tokenizer = make_pre_tokenizer_sequence(std::move(steps));
    BpeOptions options;
    options.bytes = true;
    // These families keep a word that is a token whole.
    options.whole_words = vocabulary_.pre == "llama-bpe" || vocabulary_.pre == "llama3" ||
                          vocabulary_.pre == "tekken" || vocabulary_.pre == "gpt-4o";
    parts_.model = make_bpe(Vocab(std::move(vocabulary_.tokens)), merges, options, where_);
    parts_.decoder = make_byte_level_decoder();
    add_around(vocabulary_.pre == "llama-bpe" || vocabulary_.pre == "llama3" || vocabulary_.pre == "tekken", false);
  }

  void make_bert() {
    if (!parts_.unknown) fail(ErrorCode::InvalidConfig, where_, "tokenizer.ggml.unknown_token_id is missing");
    const auto first = checked(vocabulary_.cls, "cls_token_id");
    const auto last = checked(vocabulary_.separator, "seperator_token_id");
    parts_.normalizer = make_llama_wordpiece_normalizer();
    parts_.pre_tokenizer = make_whitespace_split();
    parts_.model =
        make_wordpiece(Vocab(std::move(vocabulary_.tokens)),
                       {.unknown = *parts_.unknown, .first_prefix = "\u2581", .next_prefix = "", .longest_word = 0});
    parts_.decoder = make_spaced_decoder();
    if (vocabulary_.add_bos.value_or(true)) {
      if (first ? first : parts_.bos) parts_.before.push_back(first ? *first : *parts_.bos);
    }
    if (vocabulary_.add_sep.value_or(vocabulary_.add_eos.value_or(true)) && last) parts_.after.push_back(*last);
  }

  void make_t5() {
    if (vocabulary_.scores.empty()) fail(ErrorCode::InvalidConfig, where_, "tokenizer.ggml.scores is missing");
    space_parts(vocabulary_.remove_extra_whitespaces.value_or(false));
    std::vector<bool> usable(vocabulary_.tokens.size());
    for (size_t id = 0; id < usable.size(); ++id) {
      const int kind = type(id);
      usable[id] = kind == token_type::kNormal || kind == token_type::kUserDefined || kind == token_type::kUnused;
    }
    std::vector<double> scores(vocabulary_.scores.begin(), vocabulary_.scores.end());
    parts_.model = make_unigram(Vocab(std::move(vocabulary_.tokens)), std::move(scores), usable,
                                {.unknown = parts_.unknown.value_or(-1), .byte_fallback = false});
    add_around(false, true);
  }

  Vocabulary vocabulary_;
  const std::string& where_;
  TokenizerParts parts_;
};

}  // namespace

TokenizerPtr make_tokenizer(Vocabulary vocabulary, const std::string& where) {
  return Maker(std::move(vocabulary), where).make();
}

}  // namespace kaon
