#include "api/doctor.h"

#include <CLI/App.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/context.h"
#include "cli/quant_flags.h"
#include "cli/table.h"
#include "cli/verb.h"
#include "eval/evaluate.h"

namespace kaon {

namespace {

constexpr size_t kShown = 10;

std::string few(const std::vector<std::string>& names) {
  constexpr size_t kNamed = 3;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kNamed); ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kNamed) text += fmt::format(" and {} more", names.size() - kNamed);
  return text.empty() ? "the whole model" : text;
}

void print_steps(std::ostream& out, const Diagnosis& diagnosis) {
  for (const DoctorStep& step : diagnosis.steps) {
    out << fmt::format("{} {}: {} ({:.1f} s)\n", step.number, step.name, step.finding, step.seconds);
  }
}

void print_diagnosis(std::ostream& out, const Diagnosis& diagnosis, const DoctorCall& call) {
  using Align = Table::Align;
  print_steps(out, diagnosis);
  if (!diagnosis.causes.empty()) out << "\ncauses\n";
  for (const Cause& cause : diagnosis.causes) {
    out << fmt::format("  {:3.0f} % {}: {}\n", 100 * cause.share, enum_name(cause.kind), cause.text);
  }
  if (!diagnosis.sensitivity.empty()) {
    out << "\nquantizers, worst first\n";
    Table table({{"layer"},
                 {"slot"},
                 {"format"},
                 {"share %", Align::Right},
                 {"gain %", Align::Right},
                 {"from", Align::Right},
                 {"to", Align::Right},
                 {"alone", Align::Right},
                 {"without", Align::Right}});
    for (size_t i = 0; i < std::min(diagnosis.sensitivity.size(), kShown); ++i) {
      const Sensitivity& row = diagnosis.sensitivity[i];
      table.add_row({row.layer, std::string(name_of(row.slot)), row.format, fmt::format("{:.1f}", 100 * row.share),
                     fmt::format("{:.1f}", 100 * row.gain), fmt::format("{:.1f}", 100 * row.low),
                     fmt::format("{:.1f}", 100 * row.high), fmt::format("{:.4g}", row.only_this),
                     fmt::format("{:.4g}", row.without_this)});
    }
    table.print(out);
  }
  if (!diagnosis.tried.empty()) {
    out << "\ntried\n";
    Table table(
        {{"cure"}, {"where"}, {"before", Align::Right}, {"after", Align::Right}, {"bytes", Align::Right}, {"kept"}});
    for (const Trial& trial : diagnosis.tried) {
      table.add_row({trial.cure, few(trial.layers), fmt::format("{:.4g}", trial.before),
                     fmt::format("{:.4g}", trial.after), fmt::format("{}", trial.bytes),
                     trial.kept ? "yes" : "no: " + trial.note});
    }
    table.print(out);
  }
  out << fmt::format("\n{}: {} {:.4g} in float, {:.4g} as {}, {:.4g} as prescribed (target {:.4g}, {} samples)\n",
                     enum_name(diagnosis.verdict), diagnosis.metric, diagnosis.exact, diagnosis.quantized,
                     diagnosis.scheme, diagnosis.cured, diagnosis.target, diagnosis.samples);
  const Cure& cure = diagnosis.cure;
  out << fmt::format("{}{} bytes of constants, {:.3g} bits a weight on average, scales aside\n",
                     cure.bytes == cure.bytes_before ? "" : fmt::format("{} -> ", cure.bytes_before), cure.bytes,
                     cure.bits_average);
  if (!diagnosis.advice.empty()) out << diagnosis.advice << '\n';
  out << fmt::format(
      "report.html, cure.json, model.onnx and diagnosis.json are in {}; {:.1f} s, {:.1f} passes over the data, peak "
      "memory {:.0f} MiB\n",
      call.output.string(), diagnosis.seconds, diagnosis.forwards, diagnosis.peak_mb);
}

/// Throws UsageError for a cure or a metric that there is not.
void check_flags(const DoctorCall& call) {
  check_quant_flags(call.quant, false);
  try {
    for (const std::string& tier : call.allow) enum_value<Tier>(tier, "--allow");
    if (!call.metric.empty()) needs_labels(call.metric);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

void doctor_verb(DoctorCall& call, Context& context) {
  check_flags(call);
  call.progress = &context.progress();
  call.seed = context.seed();
  const Diagnosis diagnosis = doctor_file(call);
  context.notes(diagnosis.notes);
  note_skipped(context, diagnosis.before.skipped);
  context.result(to_json(diagnosis), [&](std::ostream& out) { print_diagnosis(out, diagnosis, call); });
}

}  // namespace

void register_doctor(Registry<Verb>& verbs) {
  verbs.add(
      "doctor",
      {.group = "Quantization",
       .summary = "find out why a quantized model lost accuracy, and a cure that was measured",
       .examples = {"kaon doctor model.onnx --scheme w8a8 --calib calib.json --data val.json --max-drop 0.01 -o clinic",
                    "kaon doctor model.onnx --scheme w4c --data val.npz --metric loss --allow same,bits -o clinic",
                    "kaon doctor model.onnx --scheme w8a8 --data val.json --time 600 --resume -o clinic",
                    "kaon doctor quantized.onnx --data val.json -o clinic"},
       .declare = [](CLI::App& app) {
         auto call = std::make_shared<DoctorCall>();
         app.add_option("MODEL", call->model, "an .onnx file, the folder of a language model, or a .gguf file")
             ->required();
         app.add_option("-o,--output", call->output, "the folder to write")->required()->type_name("DIR");
         declare_quant_flags(app, call->quant);
         declare_data_flags(app, call->data);
         app.get_option("--data")->required();
         app.add_option("--metric", call->metric,
                        "what counts (default: top1, loss or sqnr_db, as the data allow); see `kaon eval`")
             ->type_name("M");
         app.add_option(
                "--max-drop", call->max_drop,
                "how much of the metric may be lost (default: 0.01); of sqnr_db: noise as a share of the signal")
             ->check(CLI::NonNegativeNumber.description(""))
             ->type_name("X");
         app.add_option("--expect", call->expect, "the float model's metric, where you know it")->type_name("V");
         app.add_option("--allow", call->allow, "cures that may be tried (default: same,granularity,bits,float)")
             ->type_name("A,B")
             ->delimiter(',')
             ->allow_extra_args(false);
         app.add_option("--time", call->time, "begin nothing more after so many seconds")
             ->check(CLI::PositiveNumber.description(""))
             ->type_name("SECONDS");
         app.add_flag("--resume", call->resume, "go on with what an earlier run has measured in the folder");
         app.add_flag("--force", call->force, "write into a folder that is not empty");
         return [call](Context& context) { doctor_verb(*call, context); };
       }});
}

}  // namespace kaon
