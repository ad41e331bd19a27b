#include "api/load_model.h"

#include "io/onnx/onnx.h"

namespace kaon {

bool is_language_model(const std::filesystem::path& path) {
  return path.extension() == ".gguf" || lm::LanguageModel::is_folder(path);
}

Model load_model(const std::filesystem::path& path, int64_t* bytes) {
  if (!is_language_model(path)) return read_onnx(path, bytes);
  const lm::LanguageModel model = lm::LanguageModel::open(path);
  if (bytes != nullptr) *bytes = model.bytes();
  return model.whole();
}

TokenizerPtr load_tokenizer(const std::filesystem::path& path) { return open_tokenizer(path); }

std::function<TokenizerPtr()> tokenizer_of(const std::filesystem::path& path) {
  if (!is_language_model(path)) return nullptr;
  return [path] { return load_tokenizer(path); };
}

}  // namespace kaon
