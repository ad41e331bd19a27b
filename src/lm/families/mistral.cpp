// Mistral 7B: Llama whose tokens see a window of those before them.
#include "lm/decoder.h"

namespace kaon {

void register_mistral(Registry<lm::FamilyKind>& families) {
  families.add("mistral", {.summary = "Mistral, with or without its window",
                           .prefix = "model.",
                           .make = [](const lm::Config& config) -> std::unique_ptr<lm::Family> {
                             const lm::Facts facts = lm::decoder_facts(config);
                             lm::DecoderTraits traits = lm::decoder_traits(config, facts);
                             traits.windows = lm::layer_windows(config, facts, [](int64_t) { return true; });
                             return std::make_unique<lm::Decoder>(facts, std::move(traits));
                           }});
}

}  // namespace kaon
