#include "api/run.h"

#include <CLI/App.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/context.h"
#include "cli/table.h"
#include "cli/validators.h"
#include "cli/verb.h"

namespace kaon {

namespace {

void print_run(std::ostream& out, const RunResult& result) {
  using Align = Table::Align;
  std::vector<Table::Column> columns{{"output"}, {"type"}, {"shape"}};
  if (result.passed) {
    columns.insert(columns.end(), {{"max abs", Align::Right}, {"max rel", Align::Right}, {"passed"}});
  }
  Table table(columns);
  for (const RunOutput& output : result.outputs) {
    std::vector<std::string> cells{output.name, output.type, to_string(output.shape)};
    if (output.error) {
      cells.push_back(fmt::format("{:.3g}", output.error->max_abs));
      cells.push_back(fmt::format("{:.3g}", output.error->max_rel));
      cells.emplace_back(output.error->passed ? "yes" : "no");
    }
    table.add_row(std::move(cells));
  }
  table.print(out);
  const std::string time = result.seconds < 0.9995 ? fmt::format("{:.3g} ms", result.seconds * 1e3)
                                                   : fmt::format("{:.2f} s", result.seconds);
  out << fmt::format("{}, peak memory {:.0f} MiB, {:.0f} of it at start-up\n", time, result.peak_mb, result.startup_mb);
}

RunResult ran(const RunOptions& options) {
  try {
    return run_model(options);
  } catch (const Error& error) {
    if (options.input.empty() && error.where() == "--input") throw UsageError(error.what());
    throw;
  }
}

void run(const RunOptions& options, Context& context) {
  const RunResult result = ran(options);
  for (const std::string& name : result.unused) {
    context.note("{}: the model does not take '{}'; it is not used", options.input.string(), name);
  }
  context.result(to_json(result), [&](std::ostream& out) { print_run(out, result); });
  if (!options.output.empty()) {
    context.detail("{}: {} outputs and {} more values", options.output.string(), result.outputs.size(),
                   result.dumped.size());
  }
  if (!result.passed.value_or(true)) {
    fail(ErrorCode::Numeric, options.input.string(), "the outputs are not the expected ones");
  }
}

}  // namespace

void register_run(Registry<Verb>& verbs) {
  verbs.add("run", {.group = "Models",
                    .summary = "run a model on given inputs: outputs, time, memory",
                    .examples = {"kaon run model.onnx --input x.npz -o y.npz",
                                 "kaon run model.onnx --input x.npz -o y.npz --dump '*relu*'",
                                 "kaon run model.onnx --input test_data_set_0",
                                 "kaon run model.onnx --repeat 20 "
                                 "--input x.npz --json"},
                    .declare = [](CLI::App& app) {
                      auto options = std::make_shared<RunOptions>();
                      app.add_option("MODEL", options->model,
                                     "an .onnx file, the folder of a language model, or a .gguf file")
                          ->required();
                      app.add_option("--input", options->input,
                                     "an .npz with arrays named like the model's inputs, or an ONNX test-data folder, "
                                     "whose outputs are compared")
                          ->type_name("X");
                      auto* output = app.add_option("-o,--output", options->output,
                                                    "write the outputs there; types NumPy does not have as float32")
                                         ->type_name("Y.npz");
                      app.add_option("--dump", options->dump, "write the values whose names match there too")
                          ->type_name("GLOB")
                          ->needs(output);
                      app.add_option("--repeat", options->repeat, "runs; the median time counts (default: 1)")
                          ->check(at_least_one())
                          ->type_name("N");
                      return [options](Context& context) { run(*options, context); };
                    }});
}

}  // namespace kaon
