#include "quant/algorithm.h"

#include <algorithm>

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

namespace {

bool is_sequential(const AlgorithmConfig& config) {
  const auto found = config.options.find("sequential");
  return found != config.options.end() && found->second != 0;
}

/// Sets codes, and biases with them, on what the quantized network computes.
bool rounds_in_order(const AlgorithmConfig& config) {
  return algorithms().get(config.name).decides < Decides::Biases && is_sequential(config);
}

/// Leaves what such an algorithm has set as it is, or starts from it.
bool goes_in_order(const AlgorithmConfig& config) {
  const Decides decides = algorithms().get(config.name).decides;
  return decides < Decides::Codes || decides > Decides::Biases || is_sequential(config);
}

}  // namespace

bool sets_biases(const std::vector<AlgorithmConfig>& configs) { return std::ranges::any_of(configs, rounds_in_order); }

void check_order(const std::vector<AlgorithmConfig>& configs) {
  const auto decides = [](const AlgorithmConfig& config) { return algorithms().get(config.name).decides; };
  for (size_t i = 0; i < configs.size(); ++i) {
    for (size_t before = 0; before < i; ++before) {
      if (configs[before].name == configs[i].name) {
        fail(ErrorCode::InvalidConfig, "algorithms", "{} is named twice", configs[i].name);
      }
      if (rounds_in_order(configs[before]) && !goes_in_order(configs[i])) {
        fail(ErrorCode::InvalidConfig, "algorithms",
             "{} with sequential has set biases for its codes; {} behind it must be sequential too, or go",
             configs[before].name, configs[i].name);
      }
      if (decides(configs[i]) == Decides::Nothing || decides(configs[before]) <= decides(configs[i])) continue;
      fail(ErrorCode::InvalidConfig, "algorithms",
           "{} decides {}, which {} before it builds on to decide {}: put {} first", configs[i].name,
           enum_name(decides(configs[i])), configs[before].name, enum_name(decides(configs[before])), configs[i].name);
    }
  }
}

void run_algorithms(QuantizedModel& quantized, Stage stage, const Dataset* data, const QuantizeSettings& settings) {
  check_order(quantized.config.algorithms);
  // Watched values of more samples at once take memory and save no time.
  constexpr int64_t kMostSamples = 8;
  QuantizeSettings few = settings;
  few.batch = std::min(few.batch, kMostSamples);
  for (const AlgorithmConfig& config : quantized.config.algorithms) {
    const Algorithm& algorithm = algorithms().get(config.name);
    const bool goes_on = algorithm.stage != stage && stage == Stage::AfterCalibration && algorithm.after;
    if (algorithm.stage != stage && !goes_on) continue;
    if (algorithm.needs_data && data == nullptr) {
      fail(ErrorCode::InvalidConfig, config.name, "this algorithm works on data; give calibration data");
    }
    const Stopwatch watch;
    AlgorithmReport report{config.name, 0, 0, {}};
    const auto known = std::ranges::find(quantized.algorithms, config.name, &AlgorithmReport::name);
    if (goes_on && known != quantized.algorithms.end()) {
      report = std::move(*known);
      quantized.algorithms.erase(known);
    }
    const OptionValues options =
        checked_options(algorithm.options, config.options, "algorithm " + config.name, "algorithms");
    (goes_on ? algorithm.after : algorithm.run)({quantized, data, few, options, report});
    report.seconds += watch.seconds();
    quantized.algorithms.push_back(std::move(report));
  }
}

}  // namespace kaon
