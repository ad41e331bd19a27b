#pragma once
#include "api/quant_options.h"

namespace CLI {
class App;
}

namespace kaon {

class Context;

/// The flags of every verb that quantizes: --scheme, --config, --observer, --exclude, --layout.
void declare_quant_flags(CLI::App& app, QuantOptions& options);
/// The flags of every verb that reads data: --data, --calib, --limit, --calib-limit, --batch.
void declare_data_flags(CLI::App& app, DataOptions& options);
/// Throws UsageError where they name no scheme and no config, though one is `required`, or something unknown.
void check_quant_flags(const QuantOptions& options, bool required);
/// Lines on stderr about layers that were not quantized as asked.
void note_skipped(Context& context, const std::vector<Skipped>& skipped);
/// What algorithms have to say, and a line for each that changed nothing.
void note_algorithms(Context& context, const std::vector<AlgorithmReport>& reports);

}  // namespace kaon
