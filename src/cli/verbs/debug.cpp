#include "api/debug.h"

#include <CLI/App.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/context.h"
#include "cli/quant_flags.h"
#include "cli/table.h"
#include "cli/verb.h"

namespace kaon {

namespace {

constexpr size_t kShown = 10;

/// The whole model against the float one, "" without data.
std::string model_numbers(const DebugReport& report) {
  const OutputDebug* worst = report.worst_output();
  if (worst == nullptr) return "";
  const std::string which =
      report.outputs.size() == 1 ? "" : fmt::format(" ({}, the worst of {})", worst->name, report.outputs.size());
  std::string text = fmt::format("outputs: {:.1f} dB SQNR against the float model{}", worst->error.sqnr_db(), which);
  std::optional<double> agreement;  // of the output where it is lowest
  for (const OutputDebug& output : report.outputs) {
    if (output.agreement) agreement = std::min(agreement.value_or(1), *output.agreement);
  }
  if (agreement) text += fmt::format(", agreement {:.4f}", *agreement);
  const OutputDebug& first = report.outputs.front();
  if (first.top1) text += fmt::format(", top1 {:.4f} (float {:.4f})", *first.top1, *first.float_top1);
  return text + fmt::format("; {} samples\n", report.samples);
}

void print_report(std::ostream& out, const DebugResult& result, const DebugCall& call) {
  using Align = Table::Align;
  const DebugReport& report = result.report;
  Table table({{"layer"},
               {"slot"},
               {"format"},
               {"output gain", Align::Right},
               {"channel error", Align::Right},
               {"cumulative error", Align::Right},
               {"SQNR, dB", Align::Right},
               {"reading"}});
  std::set<int64_t> shown;
  for (const DebugRow& row : report.rows) {
    const QuantizerDebug& quantizer = report.of(row);
    if (shown.size() == kShown) break;
    if (!shown.insert(quantizer.id).second) continue;
    table.add_row({row.layer, std::string(name_of(row.slot)), quantizer.format,
                   quantizer.output_gain ? fmt::format("{:.1f} %", 100 * *quantizer.output_gain) : "–",
                   fmt::format("{:.2f} %", 100 * quantizer.channel_error()),
                   fmt::format("{:.2f} %", 100 * quantizer.cumulative_error()),
                   fmt::format("{:.1f}", quantizer.io.sqnr_db()), quantizer.reading});
  }
  out << model_numbers(report);
  if (report.ranked > 0) {
    out << fmt::format("`output gain` is the share of the outputs' error that goes with a quantizer, on {} samples\n",
                       report.ranked);
  }
  table.print(out);
  out << fmt::format(
      "{}: {} quantizers in {} layer slots, {} samples; {} pictures, summary.json and report.html in {}\n",
      report.scheme, report.quantizers.size(), report.rows.size(), report.samples, result.pictures,
      call.output.string());
  out << fmt::format("{:.2f} s in all, peak memory {:.0f} MiB\n", result.seconds, result.peak_mb);
}

void debug_verb(DebugCall& call, Context& context) {
  check_quant_flags(call.quant, true);
  call.progress = &context.progress();
  const DebugResult result = debug_file(call);
  if (result.calib_unused) {
    context.note("--calib {}: not used, {} learns nothing from data", call.data.calib.string(), result.report.scheme);
  }
  for (const std::string& note : result.notes) context.note("{}", note);
  note_skipped(context, result.report.skipped);
  note_algorithms(context, result.report.algorithms);
  context.detail("{}", result.description);
  if (result.report.nan) context.note("{}", describe(*result.report.nan));
  context.result(to_json(result.report), [&](std::ostream& out) { print_report(out, result, call); });
}

}  // namespace

void register_debug(Registry<Verb>& verbs) {
  verbs.add(
      "debug",
      {.group = "Quantization",
       .summary = "show what quantization does to every layer, in pictures, numbers and one page",
       .examples = {"kaon debug model.onnx --scheme w8a8 --data val.json -o debug",
                    "kaon debug model.onnx --scheme w8a8c --input sample.npz --act-hist -o debug",
                    "kaon debug model.onnx --config mixed.json --data val.npz --layers 'head.*' -o debug --force"},
       .declare = [](CLI::App& app) {
         auto call = std::make_shared<DebugCall>();
         app.add_option("MODEL", call->model, "an .onnx file, the folder of a language model, or a .gguf file")
             ->required();
         app.add_option("-o,--output", call->output, "the folder to write")->required()->type_name("DIR");
         declare_quant_flags(app, call->quant);
         declare_data_flags(app, call->data);
         app.add_option("--input", call->input, "inputs to debug on instead of --data")
             ->type_name("FILE.pt|.npz")
             ->excludes("--data");
         app.add_flag("--act-hist", call->act_hist, "histograms of activations, too");
         app.add_flag("--nan", call->nan, "stop at the first NaN or Inf and say where it is");
         app.add_option("--layers", call->layers, "only these layers")->type_name("GLOB");
         app.add_flag("--force", call->force, "write into a folder that is not empty");
         return [call](Context& context) { debug_verb(*call, context); };
       }});
}

}  // namespace kaon
