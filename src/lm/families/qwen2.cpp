// Qwen 2 and 2.5: Llama with biases on queries, keys and values.
#include "lm/decoder.h"

namespace kaon {

void register_qwen2(Registry<lm::FamilyKind>& families) {
  families.add("qwen2", {.summary = "Qwen 2 and 2.5",
                         .prefix = "model.",
                         .make = [](const lm::Config& config) -> std::unique_ptr<lm::Family> {
                           const lm::Facts facts = lm::decoder_facts(config);
                           lm::DecoderTraits traits = lm::decoder_traits(config, facts);
                           traits.qkv_bias = true;
                           if (config.flag({"use_sliding_window"}, false)) {
                             traits.windows = lm::layer_windows(config, facts, [](int64_t) { return true; });
                             // Without `layer_types`, the first layers see everything.
                             const int64_t full = config.integer({"max_window_layers"}, 28);
                             for (int64_t i = 0; i < facts.layers && !config.has({"layer_types"}); ++i) {
                               if (i < full && !traits.windows.empty()) traits.windows[static_cast<size_t>(i)] = 0;
                             }
                           }
                           return std::make_unique<lm::Decoder>(facts, std::move(traits));
                         }});
}

}  // namespace kaon
