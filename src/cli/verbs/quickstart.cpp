#include "api/quickstart.h"

#include <CLI/App.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/context.h"
#include "cli/table.h"
#include "cli/training_flags.h"
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
         declare_training_flags(app, *call);
         return [call](Context& context) {
           check_training_flags(*call);
           call->seed = context.seed();
           call->progress = &context.progress();
           const QuickstartResult result = quickstart(*call);
           context.result(to_json(result), [&](std::ostream& out) { print_result(out, result, *call); });
         };
       }});
}

}  // namespace kaon
