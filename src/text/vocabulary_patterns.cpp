#include <map>

#include "base/error.h"
#include "text/vocabulary.h"

namespace kaon {

namespace {

using Patterns = std::vector<std::string>;

/// Each name with how llama.cpp cuts for it.
const std::map<std::string, Patterns>& table() {
  static const std::map<std::string, Patterns> table = [] {
    const std::string gpt2 = kGpt2Pattern;
    const std::string llama3 =
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    const std::string qwen2 =
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    const std::string punctuation = R"([\p{P}\$\+<=>\^~\|]+)";
    std::map<std::string, Patterns> rows;
    for (const char* name : {"gpt-2", "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "jina-v2-code",
                             "roberta-bpe", "mpt", "olmo", "exaone", "gigachat", "trillion"}) {
      rows[name] = {gpt2};
    }
    for (const char* name : {"llama-bpe", "llama3", "llama-v3", "smaug-bpe", "dbrx", "falcon3", "pixtral"}) {
      rows[name] = {llama3};
    }
    for (const char* name : {"qwen2", "stablelm2", "deepseek-r1-qwen", "hunyuan", "megrez"}) rows[name] = {qwen2};
    for (const char* name : {"starcoder", "refact", "command-r", "smollm", "codeshell", "minerva-7b"}) {
      rows[name] = {R"(\p{N})", gpt2};
    }
    rows["falcon"] = {R"([\p{P}\$\+<=>\^~\|`]+)", gpt2, "[0-9][0-9][0-9]"};
    // What a file without a name gets.
    rows["default"] = {punctuation, gpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"};
    return rows;
  }();
  return table;
}

}  // namespace

std::vector<std::string> pre_tokenizer_names() {
  std::vector<std::string> names;
  for (const auto& [name, patterns] : table()) names.push_back(name);
  return names;
}

const std::vector<std::string>& pre_tokenizer_patterns(const std::string& name, const std::string& where) {
  const auto row = table().find(name.empty() ? "default" : name);
  if (row == table().end()) {
    fail(ErrorCode::Unsupported, where, "tokenizer.ggml.pre is '{}'; known are {}", name,
         fmt::join(pre_tokenizer_names(), ", "));
  }
  return row->second;
}

}  // namespace kaon
