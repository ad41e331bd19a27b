#include "api/quantize.h"

#include <CLI/App.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "api/load_model.h"
#include "api/quantize_gguf.h"
#include "base/memory_budget.h"
#include "base/text.h"
#include "cli/context.h"
#include "cli/metrics_table.h"
#include "cli/quant_flags.h"
#include "cli/table.h"
#include "cli/verb.h"

namespace kaon {

namespace {

void print_report(std::ostream& out, const QuantizeReport& report, const QuantizeCall& call) {
  using Align = Table::Align;
  Table table({{""}, {"before", Align::Right}, {"after", Align::Right}});
  table.add_row({"size", human_bytes(static_cast<double>(report.bytes_before)),
                 human_bytes(static_cast<double>(report.bytes_after))});
  table.add_row(
      {"compression", "1",
       fmt::format("{:.2f}", static_cast<double>(report.bytes_before) / static_cast<double>(report.bytes_after))});
  for (const auto& [name, value] : report.metrics_after) {
    std::string before = "–";
    for (const auto& [earlier, number] : report.metrics_before) {
      if (earlier == name) before = fmt::format("{:.4f}", number);
    }
    table.add_row({name, before, fmt::format("{:.4f}", value)});
  }
  table.print(out);
  print_outputs(out, report.outputs);
  out << fmt::format("{}: {} layers, {} quantizers -> {}\n", report.scheme, report.layers.size(), report.quantizers,
                     call.output.string());
  if (report.calibration.samples > 0) {
    out << fmt::format("calibrated on {} samples in {:.2f} s; ", report.calibration.samples,
                       report.calibration.seconds);
  }
  out << fmt::format("{:.2f} s in all, peak memory {:.0f} MiB\n", report.seconds, report.peak_mb);
}

void quantize_verb(QuantizeCall& call, Context& context) {
  // GGUF has schemes of its own.
  const std::string format = call.format.empty() ? format_of_output(call.output) : call.format;
  if (format != "gguf" || !is_gguf_scheme(call.quant.scheme)) check_quant_flags(call.quant, true);
  // Of a language model, it says where hidden states go; of others, it is the bound that all verbs have.
  if (!is_language_model(call.model)) set_memory_limit(call.memory_mb << 20);
  call.progress = &context.progress();
  const QuantizeReport report = quantize_file(call);
  if (report.calib_unused) {
    context.note("--calib {}: not used, {} learns nothing from data", call.data.calib.string(), report.scheme);
  }
  note_skipped(context, report.skipped);
  note_algorithms(context, report.algorithms);
  context.notes(report.notes);
  context.detail("{}", report.description);
  context.result(to_json(report), [&](std::ostream& out) { print_report(out, report, call); });
}

}  // namespace

void register_quantize(Registry<Verb>& verbs) {
  verbs.add(
      "quantize",
      {.group = "Quantization",
       .summary = "quantize a model and write it as other runtimes load it",
       .examples = {"kaon quantize model.onnx --scheme w8c -o small.onnx",
                    "kaon quantize model.onnx --scheme w8a8c --calib calib.json --data val.json -o int8.onnx",
                    "kaon quantize model.onnx --config mixed.json --calib calib.npz -o mixed.onnx",
                    "kaon quantize llama --scheme w4g128 --algorithms gptq --calib text.txt -o llama-w4",
                    "kaon quantize llama --scheme q4_k_m -o llama.gguf"},
       .declare = [](CLI::App& app) {
         auto call = std::make_shared<QuantizeCall>();
         app.add_option("MODEL", call->model, "an .onnx file, the folder of a language model, or a .gguf file")
             ->required();
         app.add_option("-o,--output", call->output,
                        "the .onnx file to write (OUT.json beside it says how), or the folder of a language model")
             ->required()
             ->type_name("OUT");
         declare_quant_flags(app, call->quant);
         declare_data_flags(app, call->data);
         app.add_option("--format", call->format,
                        "what a language model becomes: a folder (compressed-tensors, awq, gptq, quark), gguf or onnx; "
                        "by default as "
                        "OUT looks")
             ->type_name("F");
         app.add_option("--memory", call->memory_mb,
                        "memory to use, in MiB; of a language model, for hidden states, more of which go to a file")
             ->check(CLI::Range(1, 1 << 30).description(""))
             ->type_name("MIB");
         app.add_flag("--resume", call->resume,
                      "go on with the folder of a language model where a run that was killed stopped");
         app.add_flag("--fake", call->fake, "store what ONNX has no type for as floats");
         app.add_flag("--force", call->force, "OUT may be a file that is read from");
         return [call](Context& context) { quantize_verb(*call, context); };
       }});
}

}  // namespace kaon
