#include "cli/quant_flags.h"

#include <CLI/App.hpp>

#include "cli/context.h"
#include "cli/validators.h"

namespace kaon {

void declare_quant_flags(CLI::App& app, QuantOptions& options) {
  app.add_option("--scheme", options.scheme, "a preset; `kaon schemes` lists them")->type_name("S");
  app.add_option("--config", options.config, "a config file, alone or on top of --scheme")->type_name("F.json");
  app.add_option("--observer", options.observer,
                 "how ranges of activations are learned: min_max, percentile, mse, entropy …; options as in "
                 "percentile:percentile=99.9")
      ->type_name("NAME");
  app.add_option("--exclude", options.exclude, "what stays float, by name, with * ? [0-9] (repeatable)")
      ->type_name("GLOB,…")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--algorithms", options.algorithms,
                 "what is done besides, in this order: bias_correction, … (docs/algorithms.md); options as in "
                 "name:option=value:option=value")
      ->type_name("A,B")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--layout", options.layout, "integer types of static int8: u8s8 (default), s8s8 or u8u8")
      ->type_name("L");
}

void declare_data_flags(CLI::App& app, DataOptions& options) {
  app.add_option("--data", options.data, "data to evaluate on: .npz, .npy, .pt, a test-data folder or a .json")
      ->type_name("D");
  app.add_option("--calib", options.calib, "data to calibrate on (default: --data)")->type_name("D");
  app.add_option("--limit", options.limit, "use so many samples of --data at most")
      ->check(at_least_one())
      ->type_name("N");
  app.add_option("--calib-limit", options.calib_limit, "use so many samples to calibrate at most")
      ->check(at_least_one())
      ->type_name("N");
  app.add_option("--batch", options.batch, "samples a run (default: 8)")->check(at_least_one())->type_name("N");
}

void check_quant_flags(const QuantOptions& options, bool required) {
  if (required && !asks_to_quantize(options)) {
    throw UsageError("give --scheme (`kaon schemes` lists them), --config, or both");
  }
  try {
    check_names(options);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

void note_skipped(Context& context, const std::vector<Skipped>& skipped) {
  std::vector<std::string> lines;
  for (const Skipped& skip : skipped) lines.push_back(skip.layer + ": " + skip.reason);
  context.notes(lines);
}

void note_algorithms(Context& context, const std::vector<AlgorithmReport>& reports) {
  for (const AlgorithmReport& report : reports) {
    if (report.changed == 0) {
      context.note("{}: changed nothing{}{}", report.name, report.notes.empty() ? "" : ": ",
                   fmt::join(report.notes, "; "));
    } else {
      for (const std::string& note : report.notes) context.note("{}: {}", report.name, note);
    }
    context.detail("{}: {} changed in {:.2f} s", report.name, report.changed, report.seconds);
  }
}

}  // namespace kaon
