// Gemma 2: norms before and after each half, capped scores and logits, every other layer with a window.
#include <cmath>

#include "lm/decoder.h"

namespace kaon {

void register_gemma2(Registry<lm::FamilyKind>& families) {
  families.add(
      "gemma2",
      {.summary = "Gemma 2", .prefix = "model.", .make = [](const lm::Config& config) -> std::unique_ptr<lm::Family> {
         lm::Facts facts = lm::decoder_facts(config, /*tied_by_default=*/true);
         if (!config.has({"head_dim"})) facts.head_width = 256;
         lm::DecoderTraits traits = lm::decoder_traits(config, facts);
         traits.activation = config.text({"hidden_activation", "hidden_act"}, "gelu_pytorch_tanh");
         traits.qkv_bias = traits.out_bias = config.flag({"attention_bias"}, false);
         traits.norm_after = traits.norm_plus_one = true;
         traits.embedding_scale = std::sqrt(static_cast<float>(facts.width));
         const double scalar = config.number({"query_pre_attn_scalar"}, 256);
         if (!(scalar > 0)) config.wrong("query_pre_attn_scalar", "a number above 0 is needed");
         traits.attention_scale = static_cast<float>(1 / std::sqrt(scalar));
         traits.attention_cap = static_cast<float>(config.number({"attn_logit_softcapping"}, 0));
         traits.logit_cap = static_cast<float>(config.number({"final_logit_softcapping"}, 0));
         traits.windows = lm::layer_windows(config, facts, [](int64_t layer) { return layer % 2 == 0; });
         return std::make_unique<lm::Decoder>(facts, std::move(traits));
       }});
}

}  // namespace kaon
