// Llama 1 to 3.2: https://huggingface.co/docs/transformers/model_doc/llama
#include "lm/decoder.h"

namespace kaon {

void register_llama(Registry<lm::FamilyKind>& families) {
  families.add("llama", {.summary = "Llama 1 to 3, TinyLlama, and whatever calls itself one",
                         .prefix = "model.",
                         .make = [](const lm::Config& config) -> std::unique_ptr<lm::Family> {
                           const lm::Facts facts = lm::decoder_facts(config);
                           lm::DecoderTraits traits = lm::decoder_traits(config, facts);
                           traits.qkv_bias = traits.out_bias = config.flag({"attention_bias"}, false);
                           traits.mlp_bias = config.flag({"mlp_bias"}, false);
                           return std::make_unique<lm::Decoder>(facts, std::move(traits));
                         }});
}

}  // namespace kaon
