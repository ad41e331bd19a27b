#include "api/quickstart.h"

#include <CLI/App.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/context.h"
#include "cli/table.h"
#include "cli/verb.h"

namespace kaon {

namespace {

void print_result(std::ostream& out, const QuickstartResult& result, const QuickstartCall& call) {
  using Align = Table::Align;
  out << "The model, float:\n" << result.before << "\nand with the quantizers of w8:\n" << result.after << '\n';
  Table table({{"scheme"},
               {"accuracy", Align::Right},
               {"loss", Align::Right},
               {"size", Align::Right},
               {"compression", Align::Right},
               {"file"}});
  const auto add = [&](const QuickstartRow& row) {
    table.add_row({row.scheme, fmt::format("{:.2f} %", row.accuracy * 100), fmt::format("{:.4f}", row.loss),
                   human_bytes(static_cast<double>(row.bytes)),
                   fmt::format("{:.2f}", static_cast<double>(result.exact.bytes) / static_cast<double>(row.bytes)),
                   row.file.empty() ? "– (simulated; no runtime loads it yet)" : row.file});
  };
  add(result.exact);
  for (const QuickstartRow& row : result.schemes) add(row);
  table.print(out);
  const std::string folder = call.output.string();
  out << fmt::format("\n{:.0f} s. Look at {}/samples.png, {}/training.png and {}/debug/report.html.\n", result.seconds,
                     folder, folder, folder);
}

}  // namespace

void register_quickstart(Registry<Verb>& verbs) {
  verbs.add(
      "quickstart",
      {.group = "Quantization",
       .summary = "train a small network, quantize it in six ways, compare, look, export",
       .examples = {"kaon quickstart", "kaon quickstart --model mobilenet -o mobilenet-quickstart"},
       .declare = [](CLI::App& app) {
         auto call = std::make_shared<QuickstartCall>();
         app.add_option("-o,--output", call->output, "the folder to fill (default: kaon-quickstart)")->type_name("DIR");
         app.add_option("--model", call->model, "mlp (default), cnn or mobilenet")->type_name("NAME");
         app.add_option("--epochs", call->epochs, "times through the training images (default: the recipe's)")
             ->check(CLI::PositiveNumber.description(""))
             ->type_name("N");
         app.add_option("--recipe", call->recipe, "default, or tutorial: SGD 1e-3, batches of 64")->type_name("R");
         app.add_option("--limit", call->limit, "train on the first N images only")
             ->check(CLI::PositiveNumber.description(""))
             ->type_name("N");
         app.add_option("--data", call->data,
                        "the folder with Fashion-MNIST's four files (default: KAON_DATA, or Debian's "
                        "dataset-fashion-mnist)")
             ->type_name("DIR");
         return [call](Context& context) {
           call->seed = context.seed();
           call->progress = &context.progress();
           const QuickstartResult result = quickstart(*call);
           context.result(to_json(result), [&](std::ostream& out) { print_result(out, result, *call); });
         };
       }});
}

}  // namespace kaon
