#pragma once
#include <string>
#include <vector>

#include "lm/family.h"
#include "lm/rope.h"

namespace kaon::lm {

/// What tells the decoders with rotary positions, RMS norms and a gated second half from each other.
struct DecoderTraits {
  double epsilon = 1e-6;
  std::string activation = "silu";
  Rope rope;
  bool qkv_bias = false;
  bool out_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;     ///< each head of queries and keys is normed before it is turned
  bool fused = false;       ///< one product gives queries, keys and values, one gate and up
  bool norm_after = false;  ///< each half's result is normed before it is added
  bool norm_plus_one = false;
  float embedding_scale = 1;
  std::optional<float> attention_scale;
  float attention_cap = 0;
  float logit_cap = 0;
  std::vector<int64_t> windows;  ///< by layer; 0 = all tokens. Empty: 0 for all
};

/// Llama and what grew from it; names as in Hugging Face's Llama.
class Decoder : public Family {
 public:
  Decoder(Facts facts, DecoderTraits traits) : Family(facts), traits_(std::move(traits)) {}

  std::string embedding(Builder& build) const override;
  std::string block(Builder& build, int64_t layer, const std::string& x) const override;
  void head(Builder& build, const std::string& x) const override;

 private:
  std::string norm(Builder& build, const std::string& name, const std::string& x) const;
  std::string self_attention(Builder& build, int64_t layer, const std::string& name, const std::string& x) const;
  std::string feed_forward(Builder& build, const std::string& name, const std::string& x) const;

  DecoderTraits traits_;
};

/// What all of them read from a config alike.
Facts decoder_facts(const Config& config, bool tied_by_default = false);
/// Epsilon, activation, rotary positions.
DecoderTraits decoder_traits(const Config& config, const Facts& facts);
/// By layer, from `layer_types` where the config has it; else `window_of(layer)`.
std::vector<int64_t> layer_windows(const Config& config, const Facts& facts, bool (*slides)(int64_t layer));

}  // namespace kaon::lm
