#include "api/compare.h"

#include <CLI/App.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/context.h"
#include "cli/table.h"
#include "cli/validators.h"
#include "cli/verb.h"

namespace kaon {

namespace {

constexpr size_t kShownValues = 10;

Table table_of(const char* title, const std::vector<ValueDifference>& rows) {
  using Align = Table::Align;
  Table table(
      {{title}, {"layer"}, {"op"}, {"SQNR dB", Align::Right}, {"cosine", Align::Right}, {"max abs", Align::Right}});
  for (const ValueDifference& row : rows) {
    table.add_row({row.name, row.layer, row.op, fmt::format("{:.1f}", row.sqnr_db), fmt::format("{:.6f}", row.cosine),
                   fmt::format("{:.3g}", row.max_abs)});
  }
  return table;
}

void print_comparison(std::ostream& out, const CompareResult& result) {
  table_of("output", result.outputs).print(out);
  std::vector<ValueDifference> worst = result.values;
  std::erase_if(worst, [](const ValueDifference& row) { return !row.differs; });
  out << fmt::format("\n{} values of the same name and shape, {} of them differ\n", result.values.size(), worst.size());
  if (!worst.empty()) {
    std::ranges::stable_sort(worst, {}, &ValueDifference::sqnr_db);
    worst.resize(std::min(worst.size(), kShownValues));
    table_of("worst values", worst).print(out);
  }
  out << (result.first_difference ? "First difference: " + *result.first_difference : "No difference") << '\n';
  if (result.parting) {
    const ValueDifference& at = result.parting->at;
    out << fmt::format("They part at {} ({}): it reads values with {:.1f} dB and makes {} with {:.1f} dB\n", at.layer,
                       at.op, result.parting->input_sqnr_db, at.name, at.sqnr_db);
  } else if (result.first_difference) {
    out << fmt::format("No single place: no layer loses {:.0f} dB at once\n", kCliffDb);
  }
}

CompareResult compared(const CompareOptions& options) {
  if (!options.input.empty() && !options.data.empty()) throw UsageError("give either --input or --data");
  try {
    return compare_models(options);
  } catch (const Error& error) {
    const bool nothing_given = options.input.empty() && options.data.empty();
    if (nothing_given && error.message().starts_with("--input:")) throw UsageError(error.what());
    throw;
  }
}

}  // namespace

void register_compare(Registry<Verb>& verbs) {
  verbs.add(
      "compare",
      {.group = "Models",
       .summary = "run two models on the same inputs and say where they differ",
       .examples = {"kaon compare a.onnx b.onnx --input x.npz",
                    "kaon compare a.onnx b.onnx --data val.json --limit 100 --json"},
       .declare = [](CLI::App& app) {
         auto options = std::make_shared<CompareOptions>();
         app.add_option("A", options->a, "the .onnx file that counts as right")->required();
         app.add_option("B", options->b, "the .onnx file that is compared with it")->required();
         app.add_option("--input", options->input,
                        "an .npz with arrays named like the models' inputs, or an ONNX test-data folder")
             ->type_name("X");
         app.add_option("--data", options->data, "samples instead: .npz, .npy, .pt, a test-data folder or a .json")
             ->type_name("D");
         app.add_option("--limit", options->limit, "use so many samples of --data at most")
             ->check(at_least_one())
             ->type_name("N");
         app.add_option("--batch", options->batch, "samples a run (default: 8)")->check(at_least_one())->type_name("N");
         return [options](Context& context) {
           options->progress = &context.progress();
           const CompareResult result = compared(*options);
           for (const std::string& name : result.unused) {
             context.note("{}: a model does not take '{}'; it is not used there", options->input.string(), name);
           }
           context.result(to_json(result), [&](std::ostream& out) { print_comparison(out, result); });
         };
       }});
}

}  // namespace kaon
