#include "quant/algorithm.h"

#include "base/error.h"
#include "base/stopwatch.h"

namespace kaon {

const Registry<Algorithm>& algorithms() {
  static const Registry<Algorithm> all = [] {
    Registry<Algorithm> found("algorithm");
    register_all_algorithms(found);
    return found;
  }();
  return all;
}

void check_algorithm(const AlgorithmConfig& config, const std::string& where) {
  const Algorithm* algorithm = algorithms().find(config.name);
  if (algorithm == nullptr) {
    fail(ErrorCode::InvalidConfig, where, "unknown algorithm '{}'; known are {}", config.name,
         fmt::join(algorithms().names(), ", "));
  }
  checked_options(algorithm->options, config.options, "algorithm " + config.name, where);
}

void run_algorithms(QuantizedModel& quantized, Stage stage, const Dataset* data, const QuantizeSettings& settings) {
  for (const AlgorithmConfig& config : quantized.config.algorithms) {
    const Algorithm& algorithm = algorithms().get(config.name);
    if (algorithm.stage != stage) continue;
    if (algorithm.needs_data && data == nullptr) {
      fail(ErrorCode::InvalidConfig, config.name, "this algorithm works on data; give calibration data");
    }
    const Stopwatch watch;
    AlgorithmReport report{config.name, 0, 0, {}};
    algorithm.run({quantized, data, settings,
                   checked_options(algorithm.options, config.options, "algorithm " + config.name, "algorithms"),
                   report});
    report.seconds = watch.seconds();
    quantized.algorithms.push_back(std::move(report));
  }
}

}  // namespace kaon
