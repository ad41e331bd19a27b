#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "api/quant_options.h"

namespace kaon {

struct GenerateCall {
  std::filesystem::path model;  ///< a language model with its tokenizer
  std::string prompt;
  int64_t tokens = 128;    ///< new ones at most; an end token or the model's positions may stop it before
  double temperature = 0;  ///< 0: the likeliest token each time
  double top_p = 1;
  uint64_t seed = 0;
  QuantOptions quant;                               ///< with a scheme or config, the quantized model writes
  std::function<void(const std::string&)> on_text;  ///< told the prompt and then each piece of text as it comes
  Progress* progress = &no_progress();
};

struct GenerateResult {
  std::string text;  ///< prompt included
  std::vector<int64_t> ids;
  int64_t prompt_tokens = 0;
  int64_t new_tokens = 0;
  double prefill_seconds = 0;           ///< the prompt, and the first new token's choice
  double decode_tokens_per_second = 0;  ///< of those after the first
  double peak_mb = 0;
  std::vector<Skipped> skipped;
};

GenerateResult generate_text(const GenerateCall& call);

nlohmann::ordered_json to_json(const GenerateResult& result);

}  // namespace kaon
