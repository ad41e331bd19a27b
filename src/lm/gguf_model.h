#pragma once
#include <memory>

#include "io/gguf/gguf.h"
#include "lm/config.h"
#include "lm/weights.h"

namespace kaon::lm {

/// What the metadata say, as the config.json of the same model would: architectures llama, gpt2, qwen2, qwen3 and phi3.
/// Throws Unsupported for others and for split files, InvalidConfig for a missing key. `where` is the file.
Config gguf_config(const GgufFile& file, const std::string& where);

/// The tensors under the names and in the layout of the hub; those that are quantized are dequantized when asked for.
std::unique_ptr<Weights> gguf_weights(std::shared_ptr<const GgufFile> file, const std::string& where);

}  // namespace kaon::lm
