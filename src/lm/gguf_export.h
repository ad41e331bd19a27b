#pragma once
#include <string>

#include "io/gguf/gguf_writer.h"
#include "lm/language_model.h"

namespace kaon::lm {

/// What llama.cpp calls the family. Throws Unsupported for those that it, or Kaon's writer, does not know.
std::string gguf_architecture(const LanguageModel& model, const std::string& where);

/// The keys of the architecture, as gguf_config() reads them. Throws Unsupported for rotary positions that GGUF says in
/// other ways.
GgufMetadata gguf_architecture_keys(const LanguageModel& model, const std::string& where);

/// What the rotary frequencies are divided by where that is not a number; empty: nothing. The tensor
/// "rope_freqs.weight".
std::vector<float> gguf_rope_factors(const LanguageModel& model);

/// A tensor of the hub, as float32, in the order that a GGUF file has it.
std::vector<float> to_gguf_order(const LanguageModel& model, const std::string& hub, const Tensor& tensor);

}  // namespace kaon::lm
