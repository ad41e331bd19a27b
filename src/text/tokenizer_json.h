#pragma once
#include "text/json_part.h"
#include "text/tokenizer.h"

namespace kaon {

/// The parts of a tokenizer.json. Truncation and padding are the caller's affair and not read. Throws InvalidConfig or
/// Unsupported naming `where` and the part.
TokenizerParts parse_tokenizer_json(const nlohmann::json& document, const std::string& where);

NormalizerPtr parse_normalizer(const JsonPart& part);
/// `raw_bytes`: the last step leaves bytes as they are where it would write them as letters.
PreTokenizerPtr parse_pre_tokenizer(const JsonPart& part, bool raw_bytes);
TokenDecoderPtr parse_decoder(const JsonPart& part);
/// Whether the last step writes bytes as letters.
bool ends_in_byte_level(const JsonPart& pre_tokenizer);

/// Numbers of the pieces of {"piece": number, …}.
Vocab parse_vocab(const nlohmann::json& object, const std::string& where);

}  // namespace kaon
