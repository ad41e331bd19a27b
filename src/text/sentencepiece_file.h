#pragma once
#include <span>

#include "text/tokenizer.h"

namespace kaon {

/// A tokenizer.model: SentencePiece's BPE or Unigram. Throws CorruptFile or Unsupported naming the file.
TokenizerParts read_sentencepiece_file(const std::filesystem::path& path);
TokenizerParts read_sentencepiece(std::span<const std::byte> bytes, const std::string& where);

}  // namespace kaon
