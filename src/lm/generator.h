#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "lm/cache.h"

namespace kaon::lm {

/// How the next token is chosen from its logits.
struct Sampling {
  double temperature = 0;  ///< 0: the likeliest
  double top_p = 1;        ///< only among the likeliest that together have this probability
  uint64_t seed = 0;
};

/// The number of the token; `step` counts the draws. Of equal logits the first counts as larger.
int64_t choose(std::span<const float> logits, const Sampling& sampling, uint64_t step);

/// A text in the making: keys and values of the tokens so far are kept.
class Generator {
 public:
  /// `model` is LanguageModel::whole with a cache and the last token's logits alone, maybe quantized.
  Generator(Model model, const Facts& facts);

  /// Adds tokens to the text; returns the logits for the one that follows, valid until the next call. Throws
  /// InvalidInput past the model's positions or for an id that is none of the vocabulary.
  std::span<const float> feed(std::span<const int64_t> ids);
  int64_t tokens() const { return cache_.tokens(); }

 private:
  Engine engine_;
  Facts facts_;
  KeyValueCache cache_;
  Tensor logits_;
};

}  // namespace kaon::lm
