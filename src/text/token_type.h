#pragma once
#include <cstdint>

/// What a token is, as SentencePiece and GGUF number it.
namespace kaon::token_type {

inline constexpr int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6;

}  // namespace kaon::token_type
