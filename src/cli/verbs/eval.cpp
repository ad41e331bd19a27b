#include "api/eval.h"

#include <CLI/App.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/context.h"
#include "cli/quant_flags.h"
#include "cli/table.h"
#include "cli/verb.h"

namespace kaon {

namespace {

void print_report(std::ostream& out, const EvalReport& report) {
  Table table({{"metric"}, {"value", Table::Align::Right}});
  for (const auto& [name, value] : report.metrics) table.add_row({name, fmt::format("{:.6g}", value)});
  table.print(out);
  out << fmt::format("{} samples in {:.2f} s, peak memory {:.0f} MiB\n", report.samples, report.seconds,
                     report.peak_mb);
}

}  // namespace

void register_eval(Registry<Verb>& verbs) {
  verbs.add("eval",
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
               declare_quant_flags(app, options->quant);
               app.add_option("--reference", options->reference, "the model to compare with")->type_name("MODEL");
               app.add_option("--memory", options->memory_mb,
                              "run a language model block by block; hidden states beyond so many MiB go to a file")
                   ->type_name("MIB");
               return [options](Context& context) {
                 options->progress = &context.progress();
                 const EvalReport report = eval_model(*options);
                 note_skipped(context, report.skipped);
                 note_algorithms(context, report.algorithms);
                 context.result(to_json(report), [&](std::ostream& out) { print_report(out, report); });
               };
             }});
}

}  // namespace kaon
