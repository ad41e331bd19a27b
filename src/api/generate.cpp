#include "api/generate.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "api/load_model.h"
#include "base/error.h"
#include "base/memory_usage.h"
#include "base/stopwatch.h"
#include "lm/generator.h"
#include "quant/simulate.h"

namespace kaon {

namespace {

void check(const GenerateCall& call) {
  if (call.tokens < 1) fail(ErrorCode::InvalidInput, "--tokens", "is {}; 1 or more is needed", call.tokens);
  if (!(call.temperature >= 0))
    fail(ErrorCode::InvalidInput, "--temperature", "is {}; 0 or more is needed", call.temperature);
  if (!(call.top_p > 0) || call.top_p > 1) {
    fail(ErrorCode::InvalidInput, "--top-p", "is {}; above 0 and up to 1 is needed", call.top_p);
  }
}

std::vector<int64_t> widened(const TokenIds& ids) { return {ids.begin(), ids.end()}; }

}  // namespace

GenerateResult generate_text(const GenerateCall& call) {
  check(call);
  const lm::LanguageModel language = lm::LanguageModel::open(call.model);
  if (!language.facts().causal) {
    fail(ErrorCode::InvalidInput, call.model.string(), "{} is an encoder; it predicts no next token",
         language.family_name());
  }
  const TokenizerPtr tokenizer = load_tokenizer(call.model);
  GenerateResult result;
  result.ids = widened(tokenizer->encode(call.prompt));
  if (result.ids.empty()) fail(ErrorCode::InvalidInput, "--prompt", "it has no tokens");
  result.prompt_tokens = std::ssize(result.ids);

  Model model = language.whole({.cache = true, .last_only = true});
  if (!call.quant.scheme.empty() || !call.quant.config.empty()) {
    const QuantizedModel quantized = quantize_for(call.model, model, config_of(call.quant), {}, *call.progress);
    result.skipped = quantized.skipped;
    model = simulate(quantized);
  }
  lm::Generator generator(std::move(model), language.facts());
  const lm::Sampling sampling{call.temperature, call.top_p, call.seed};
  const std::vector<int64_t> ends = language.end_tokens();
  StreamDecoder decoder(tokenizer);
  const auto tell = [&](const std::string& piece) {
    result.text += piece;
    if (call.on_text && !piece.empty()) call.on_text(piece);
  };
  for (const int64_t id : result.ids) tell(decoder.add(static_cast<int32_t>(id)));

  Stopwatch watch;
  std::span<const float> logits = generator.feed(result.ids);
  double first_seconds = 0;
  while (true) {
    const int64_t id = lm::choose(logits, sampling, static_cast<uint64_t>(result.new_tokens));
    if (++result.new_tokens == 1) result.prefill_seconds = first_seconds = watch.seconds();
    result.ids.push_back(id);
    if (std::ranges::find(ends, id) != ends.end()) break;
    tell(decoder.add(static_cast<int32_t>(id)));
    if (result.new_tokens == call.tokens || generator.tokens() == language.facts().positions) break;
    logits = generator.feed(std::span(&id, 1));
  }
  const double decode_seconds = watch.seconds() - first_seconds;
  if (result.new_tokens > 1) {
    result.decode_tokens_per_second = static_cast<double>(result.new_tokens - 1) / decode_seconds;
  }
  tell(decoder.finish());
  result.peak_mb = peak_memory_mb();
  return result;
}

nlohmann::ordered_json to_json(const GenerateResult& result) {
  return {{"text", result.text},
          {"ids", result.ids},
          {"prompt_tokens", result.prompt_tokens},
          {"new_tokens", result.new_tokens},
          {"prefill_seconds", result.prefill_seconds},
          {"decode_tokens_per_second", result.decode_tokens_per_second},
          {"peak_mb", result.peak_mb}};
}

}  // namespace kaon
