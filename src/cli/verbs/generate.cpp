#include "api/generate.h"

#include <CLI/App.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/context.h"
#include "cli/quant_flags.h"
#include "cli/verb.h"

namespace kaon {

namespace {

void generate(GenerateCall& call, Context& context) {
  call.seed = context.seed();
  call.progress = &context.progress();
  call.on_text = [&](const std::string& piece) { context.stream(piece); };
  const GenerateResult result = generate_text(call);
  note_skipped(context, result.skipped);
  context.result(to_json(result), [](std::ostream& out) { out << '\n'; });
  context.note("{} tokens after {}: the first {:.3g} s, then {:.3g} a second", result.new_tokens, result.prompt_tokens,
               result.prefill_seconds, result.decode_tokens_per_second);
}

}  // namespace

void register_generate(Registry<Verb>& verbs) {
  verbs.add("generate",
            {.group = "Models",
             .summary = "let a language model, float or quantized, go on from a prompt",
             .examples = {"kaon generate llama --prompt 'Once upon a time'",
                          "kaon generate llama --prompt 'Once upon a time' --tokens 64 --temperature 0.8 --top-p 0.9",
                          "kaon generate model.gguf --prompt 'Once upon a time' --scheme w4g32 --json"},
             .declare = [](CLI::App& app) {
               auto call = std::make_shared<GenerateCall>();
               app.add_option("MODEL", call->model, "the folder of a language model, or a .gguf file")->required();
               app.add_option("--prompt", call->prompt, "the text to go on from")->required()->type_name("S");
               app.add_option("--tokens", call->tokens, "new tokens at most (default: 128)")->type_name("N");
               app.add_option("--temperature", call->temperature,
                              "draw with this temperature (default: 0, the likeliest token)")
                   ->type_name("T");
               app.add_option("--top-p", call->top_p,
                              "draw among the likeliest tokens of this probability together (default: 1)")
                   ->type_name("P");
               declare_quant_flags(app, call->quant);
               return [call](Context& context) { generate(*call, context); };
             }});
}

}  // namespace kaon
