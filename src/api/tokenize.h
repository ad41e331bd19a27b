#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace kaon {

struct TokenizeOptions {
  std::filesystem::path model;              ///< a Hugging Face folder, a file of a tokenizer, or a .gguf
  std::optional<std::string> text;          ///< one of these three
  std::filesystem::path file;               ///< whose text is taken
  std::optional<std::vector<int32_t>> ids;  ///< to decode
  bool special = true;                      ///< with the tokens that the family puts around a text
};

struct Tokenized {
  std::vector<int32_t> ids;
  std::vector<std::string> tokens;  ///< as the vocabulary writes them
  std::string text;                 ///< what the ids give
};

/// Throws what open_tokenizer throws, and InvalidInput for text that is not UTF-8 and ids that no token has.
Tokenized tokenize(const TokenizeOptions& options);

/// `{ids, tokens, text}`
nlohmann::ordered_json to_json(const Tokenized& result);

}  // namespace kaon
