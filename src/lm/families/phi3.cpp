// Phi-3 and Phi-4-mini: fused products, maybe two sets of rotary frequencies.
#include "lm/decoder.h"

namespace kaon {

void register_phi3(Registry<lm::FamilyKind>& families) {
  families.add("phi3", {.summary = "Phi-3, Phi-3.5-mini, Phi-4-mini",
                        .prefix = "model.",
                        .make = [](const lm::Config& config) -> std::unique_ptr<lm::Family> {
                          const lm::Facts facts = lm::decoder_facts(config);
                          lm::DecoderTraits traits = lm::decoder_traits(config, facts);
                          traits.fused = true;
                          traits.windows = lm::layer_windows(config, facts, [](int64_t) { return true; });
                          return std::make_unique<lm::Decoder>(facts, std::move(traits));
                        }});
}

}  // namespace kaon
