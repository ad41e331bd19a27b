#pragma once
#include <filesystem>
#include <functional>

#include "graph/graph.h"
#include "lm/language_model.h"
#include "text/tokenizer.h"

namespace kaon {

/// Whether `path` is a language model: a folder with a config.json, or a .gguf file.
bool is_language_model(const std::filesystem::path& path);

/// The model that a verb is given: an ONNX file, or a language model, whose graph reads "input_ids" [N, T] and gives
/// "logits" [N, T, vocabulary]. `bytes`, where given, gets the size of its files.
Model load_model(const std::filesystem::path& path, int64_t* bytes = nullptr);

/// The tokenizer in a language model's folder or .gguf file.
TokenizerPtr load_tokenizer(const std::filesystem::path& path);
/// A way to it, for data that may be text; empty for other models.
std::function<TokenizerPtr()> tokenizer_of(const std::filesystem::path& path);

}  // namespace kaon
