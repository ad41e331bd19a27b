#include "api/tokenize.h"

#include <CLI/App.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/context.h"
#include "cli/verb.h"

namespace kaon {

namespace {

void print_tokens(std::ostream& out, const Tokenized& result, bool decoded) {
  if (decoded) {
    out << result.text << '\n';
    return;
  }
  for (size_t i = 0; i < result.ids.size(); ++i) out << fmt::format("{:>8}  {}\n", result.ids[i], result.tokens[i]);
  out << fmt::format("{} tokens\n", result.ids.size());
}

}  // namespace

void register_tokenize(Registry<Verb>& verbs) {
  verbs.add("tokenize",
            {.group = "Models",
             .summary = "text to tokens with a model's tokenizer, and back",
             .examples = {"kaon tokenize opt-125m --text \"Hello, world\"",
                          "kaon tokenize model.gguf --file notes.txt --no-special --json",
                          "kaon tokenize opt-125m --decode 2,31414,6,232"},
             .declare = [](CLI::App& app) {
               auto options = std::make_shared<TokenizeOptions>();
               auto text = std::make_shared<std::string>();
               auto ids = std::make_shared<std::vector<int32_t>>();
               auto no_special = std::make_shared<bool>(false);
               app.add_option("MODEL", options->model, "a Hugging Face folder or a .gguf file")->required();
               auto* text_flag = app.add_option("--text", *text, "the text")->type_name("S");
               auto* file_flag = app.add_option("--file", options->file, "a file whose text is taken")->type_name("F");
               auto* decode_flag = app.add_option("--decode", *ids, "numbers to turn into text")
                                       ->delimiter(',')
                                       ->allow_extra_args(false)
                                       ->type_name("N,…");
               text_flag->excludes(file_flag)->excludes(decode_flag);
               file_flag->excludes(decode_flag);
               app.add_flag("--no-special", *no_special, "without the tokens that the family puts around a text");
               return [=](Context& context) {
                 const size_t given = text_flag->count() + file_flag->count() + decode_flag->count();
                 if (given == 0) throw UsageError("give --text, --file or --decode");
                 if (text_flag->count() > 0) options->text = *text;
                 if (decode_flag->count() > 0) options->ids = *ids;
                 options->special = !*no_special;
                 const Tokenized result = tokenize(*options);
                 context.result(to_json(result),
                                [&](std::ostream& out) { print_tokens(out, result, options->ids.has_value()); });
               };
             }});
}

}  // namespace kaon
