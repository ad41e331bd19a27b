#include "api/load_model.h"

#include "base/error.h"
#include "io/gguf/gguf.h"
#include "io/onnx/onnx.h"
#include "text/vocabulary.h"

namespace kaon {

namespace {

/// The values of tokenizer.ggml.`key`, as far as they are there.
class VocabularyKeys {
 public:
  explicit VocabularyKeys(const GgufFile& file) : file_(file) {}

  template <typename T>
  void copy(const char* key, T& into) const {
    if (const T* value = find<T>(key)) into = *value;
  }
  template <typename T>
  void copy(const char* key, std::optional<T>& into) const {
    if (const T* value = find<T>(key)) into = *value;
  }
  /// A list of From as a list of narrower ones.
  template <typename From, typename List>
  void narrow(const char* key, List& into) const {
    if (const auto* values = find<std::vector<From>>(key)) {
      for (const From value : *values) into.push_back(static_cast<typename List::value_type>(value));
    }
  }

 private:
  template <typename T>
  const T* find(const char* key) const {
    return file_.get_if<T>(std::string("tokenizer.ggml.") + key);
  }

  const GgufFile& file_;
};

Vocabulary gguf_vocabulary(const GgufFile& file, const std::string& where) {
  const VocabularyKeys keys(file);
  Vocabulary vocabulary;
  keys.copy("model", vocabulary.model);
  keys.copy("pre", vocabulary.pre);
  keys.copy("tokens", vocabulary.tokens);
  keys.copy("merges", vocabulary.merges);
  keys.narrow<double>("scores", vocabulary.scores);
  keys.narrow<int64_t>("token_type", vocabulary.types);
  keys.narrow<int64_t>("precompiled_charsmap", vocabulary.charsmap);
  keys.copy("bos_token_id", vocabulary.bos);
  keys.copy("eos_token_id", vocabulary.eos);
  keys.copy("unknown_token_id", vocabulary.unknown);
  keys.copy("padding_token_id", vocabulary.padding);
  keys.copy("seperator_token_id", vocabulary.separator);  // spelled so in the format
  keys.copy("cls_token_id", vocabulary.cls);
  keys.copy("add_bos_token", vocabulary.add_bos);
  keys.copy("add_eos_token", vocabulary.add_eos);
  keys.copy("add_sep_token", vocabulary.add_sep);
  keys.copy("add_space_prefix", vocabulary.add_space_prefix);
  keys.copy("remove_extra_whitespaces", vocabulary.remove_extra_whitespaces);
  if (vocabulary.tokens.empty()) fail(ErrorCode::InvalidInput, where, "it has no 'tokenizer.ggml.tokens'");
  return vocabulary;
}

}  // namespace

bool is_language_model(const std::filesystem::path& path) {
  return path.extension() == ".gguf" || lm::LanguageModel::is_folder(path);
}

Model load_model(const std::filesystem::path& path, int64_t* bytes) {
  if (!is_language_model(path)) return read_onnx(path, bytes);
  const lm::LanguageModel model = lm::LanguageModel::open(path);
  if (bytes != nullptr) *bytes = model.bytes();
  return model.whole();
}

TokenizerPtr load_tokenizer(const std::filesystem::path& path) {
  if (path.extension() != ".gguf") return open_tokenizer(path);
  return make_tokenizer(gguf_vocabulary(GgufFile::read(path), path.string()), path.string());
}

std::function<TokenizerPtr()> tokenizer_of(const std::filesystem::path& path) {
  if (!is_language_model(path)) return nullptr;
  return [path] { return load_tokenizer(path); };
}

}  // namespace kaon
