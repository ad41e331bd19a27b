#pragma once
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/pre_tokenizer.h"
#include "text/token_decoder.h"
#include "text/word_model.h"

namespace kaon {

/// What a tokenizer is made of; readers of files fill it in.
struct TokenizerParts {
  std::vector<AddedToken> added;
  NormalizerPtr normalizer;       ///< may be null
  PreTokenizerPtr pre_tokenizer;  ///< may be null
  std::unique_ptr<WordModel> model;
  TokenDecoderPtr decoder;  ///< null: tokens are joined by spaces
  TokenIds before, after;   ///< special tokens around every text
  std::optional<int32_t> bos, eos, unknown, padding;
  std::string where;  ///< the file, for messages
};

/// Text to numbers and back. One tokenizer serves any number of threads.
class Tokenizer {
 public:
  explicit Tokenizer(TokenizerParts parts);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// With `add_special`, the tokens that the family puts around a text. Throws InvalidInput, naming the byte, for text
  /// that is not UTF-8.
  TokenIds encode(std::string_view text, bool add_special = true) const;
  /// Valid UTF-8, whatever the ids. Throws InvalidInput for an id that no token has.
  std::string decode(std::span<const int32_t> ids, bool skip_special = true) const;

  /// One more than the largest number of a token.
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  /// As the vocabulary writes it. Throws InvalidInput for an id that no token has.
  const std::string& token(int32_t id) const;
  std::optional<int32_t> find(std::string_view token) const;
  bool is_special(int32_t id) const;

  std::optional<int32_t> bos() const { return parts_.bos; }
  std::optional<int32_t> eos() const { return parts_.eos; }
  std::optional<int32_t> unknown() const { return parts_.unknown; }
  std::optional<int32_t> padding() const { return parts_.padding; }

 private:
  class State;
  void encode_text(std::string_view text, bool starts_text, State& state, TokenIds& out) const;
  void encode_words(const Pieces& pieces, State& state, TokenIds& out) const;

  TokenizerParts parts_;
  TokenFinder raw_, normalized_;
  std::vector<std::string> tokens_;
  std::vector<bool> special_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<State>> states_;  ///< those that nobody works with
};

using TokenizerPtr = std::shared_ptr<const Tokenizer>;

/// Reads a folder's tokenizer.json, else tokenizer.model, else vocab.json and merges.txt, else vocab.txt; or one such
/// file itself, or a .gguf file with a vocabulary. Throws Io, CorruptFile, InvalidConfig or Unsupported, naming the
/// file and the part at fault.
TokenizerPtr open_tokenizer(const std::filesystem::path& path);

/// Text of tokens as they come: what is not a whole character yet is held back.
class StreamDecoder {
 public:
  explicit StreamDecoder(TokenizerPtr tokenizer, bool skip_special = true)
      : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}

  /// The text that this token adds; may be empty.
  std::string add(int32_t id);
  /// What was held back, at the end: characters that never became whole are U+FFFD.
  std::string finish();

 private:
  TokenizerPtr tokenizer_;
  bool skip_special_;
  TokenIds ids_;       ///< from the last place where text was given out on, and those before it that it depends on
  std::string given_;  ///< the text of the first `settled_` of them
  size_t settled_ = 0;
};

}  // namespace kaon
