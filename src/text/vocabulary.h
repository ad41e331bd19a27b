#pragma once
#include <optional>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace kaon {

class GgufFile;

/// A tokenizer as GGUF's metadata says it (the keys tokenizer.ggml.*).
struct Vocabulary {
  std::string model;                ///< "llama" (SentencePiece BPE), "gpt2" (byte-level BPE), "bert", "t5" (Unigram)
  std::string pre;                  ///< how gpt2's text is cut: "gpt-2", "llama-bpe", "falcon" …; "" is "default"
  std::vector<std::string> tokens;  ///< by number
  std::vector<float> scores;        ///< empty, or one for each token
  std::vector<int32_t> types;       ///< empty, or the token_type of each
  std::vector<std::string> merges;  ///< "left right"
  std::optional<int64_t> bos, eos, unknown, separator, padding, cls;
  std::optional<bool> add_bos, add_eos, add_sep, add_space_prefix, remove_extra_whitespaces;
  std::string charsmap;  ///< precompiled_charsmap
};

/// Encodes as llama.cpp does, special tokens in the text included. `where` is the file. Throws InvalidConfig or
/// Unsupported naming the key.
TokenizerPtr make_tokenizer(Vocabulary vocabulary, const std::string& where);

/// What a GGUF file says; what it does not say stays empty.
Vocabulary read_vocabulary(const GgufFile& file);

/// The BPE of a tokenizer.json, in the same words; its special tokens' numbers stay empty. Throws CorruptFile, or
/// Unsupported for other models and pre-tokenizers that have no name there.
Vocabulary read_json_vocabulary(const std::filesystem::path& path);

/// The names that `pre` may have.
std::vector<std::string> pre_tokenizer_names();
/// The regular expressions that cut text one after the other. Throws Unsupported for a name that is not known.
const std::vector<std::string>& pre_tokenizer_patterns(const std::string& name, const std::string& where);

}  // namespace kaon
