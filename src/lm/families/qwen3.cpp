// Qwen 3: no biases; each head of queries and keys is normed.
#include "lm/decoder.h"

namespace kaon {

void register_qwen3(Registry<lm::FamilyKind>& families) {
  families.add("qwen3", {.summary = "Qwen 3, dense",
                         .prefix = "model.",
                         .make = [](const lm::Config& config) -> std::unique_ptr<lm::Family> {
                           lm::Facts facts = lm::decoder_facts(config);
                           if (!config.has({"head_dim"})) facts.head_width = 128;
                           lm::DecoderTraits traits = lm::decoder_traits(config, facts);
                           traits.qkv_bias = traits.out_bias = config.flag({"attention_bias"}, false);
                           traits.qk_norm = true;
                           if (config.flag({"use_sliding_window"}, false)) {
                             traits.windows = lm::layer_windows(config, facts, [](int64_t) { return true; });
                           }
                           return std::make_unique<lm::Decoder>(facts, std::move(traits));
                         }});
}

}  // namespace kaon
