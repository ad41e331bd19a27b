#include "api/eval.h"

#include <CLI/App.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/load_model.h"
#include "base/memory_budget.h"
#include "cli/context.h"
#include "cli/metrics_table.h"
#include "cli/quant_flags.h"
#include "cli/table.h"
#include "cli/verb.h"

namespace kaon {

namespace {

void print_report(std::ostream& out, const EvalReport& report) {
  Table table({{"metric"}, {"value", Table::Align::Right}});
  for (const auto& [name, value] : report.metrics) table.add_row({name, fmt::format("{:.6g}", value)});
  table.print(out);
  print_outputs(out, report.outputs);
  out << fmt::format("{} samples in {:.2f} s, peak memory {:.0f} MiB\n", report.samples, report.seconds,
                     report.peak_mb);
}

void check_metrics(const EvalOptions& options) {
  const bool has_reference =
      !options.quant.scheme.empty() || !options.quant.config.empty() || !options.reference.empty();
  try {
    for (const std::string& metric : options.metrics) {
      if (!needs_reference(metric) || has_reference) continue;
      fail(ErrorCode::InvalidConfig, metric,
           "compares with a reference model; give --scheme, --config or --reference MODEL");
    }
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

}  // namespace

void register_eval(Registry<Verb>& verbs) {
  verbs.add(
      "eval",
      {.group = "Quantization",
       .summary = "measure a model, float or quantized, on data",
       .examples = {"kaon eval model.onnx --data val.json --metric top1,loss",
                    "kaon eval model.onnx --data val.json --scheme w8a8c --calib calib.json",
                    "kaon eval small.onnx --data val.json --reference model.onnx --metric sqnr_db",
                    "kaon eval llama --data text.txt --metric ppl --scheme w4g32 --memory 512"},
       .declare = [](CLI::App& app) {
         auto options = std::make_shared<EvalOptions>();
         app.add_option("MODEL", options->model, "an .onnx file, the folder of a language model, or a .gguf file")
             ->required();
         declare_data_flags(app, options->data);
         app.get_option("--data")->required();
         app.add_option("--metric", options->metrics,
                        "top1, top5, loss, ppl, and against the float model or --reference sqnr_db, mse, "
                        "cosine, kl, agreement")
             ->delimiter(',')
             ->allow_extra_args(false)
             ->type_name("M,…");
         app.add_option("--output", options->outputs,
                        "outputs of the model to look at (default: all, the worst of each metric counting); "
                        "labels go with the first")
             ->delimiter(',')
             ->allow_extra_args(false)
             ->type_name("NAME,…");
         declare_quant_flags(app, options->quant);
         app.add_option("--reference", options->reference, "the model to compare with")->type_name("MODEL");
         app.add_option(
                "--memory", options->memory_mb,
                "memory to use, in MiB; a language model is run block by block, its hidden states beyond it go to a "
                "file")
             ->check(CLI::Range(1, 1 << 30).description(""))
             ->type_name("MIB");
         return [options](Context& context) {
           check_quant_flags(options->quant, false);
           check_metrics(*options);
           // Of a language model, it says how it is run; of others, it is the bound that all verbs have.
           if (!is_language_model(options->model)) {
             set_memory_limit(std::exchange(options->memory_mb, 0) << 20);
           }
           options->progress = &context.progress();
           const EvalReport report = eval_model(*options);
           context.notes(report.notes);
           note_skipped(context, report.skipped);
           note_algorithms(context, report.algorithms);
           context.detail("{}", report.description);
           context.result(to_json(report), [&](std::ostream& out) { print_report(out, report); });
         };
       }});
}

}  // namespace kaon
