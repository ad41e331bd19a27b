#pragma once
#include <memory>
#include <string>
#include <vector>

#include "text/normalizer.h"
#include "text/pre_tokenizer.h"

namespace kaon {

/// Turns tokens back into text, token by token; the text is all of them put together.
class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

using TokenDecoderPtr = std::unique_ptr<const TokenDecoder>;

TokenDecoderPtr make_decoder_sequence(std::vector<TokenDecoderPtr> parts);
TokenDecoderPtr make_byte_level_decoder();
TokenDecoderPtr make_metaspace_decoder(std::string replacement, PrependScheme prepend);
TokenDecoderPtr make_byte_fallback_decoder();
TokenDecoderPtr make_fuse_decoder();
/// Takes up to `start` and `stop` times `content` off the ends of each token.
TokenDecoderPtr make_strip_decoder(std::string content, int64_t start, int64_t stop);
TokenDecoderPtr make_replace_decoder(const Pattern& pattern, std::string content, const std::string& where);
TokenDecoderPtr make_wordpiece_decoder(std::string prefix, bool cleanup);
TokenDecoderPtr make_bpe_decoder(std::string suffix);
/// llama.cpp's for WordPiece: the mark of a word's start becomes a space, but for the first.
TokenDecoderPtr make_spaced_decoder();

}  // namespace kaon
