#include "api/quant_options.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "api/language_parts.h"
#include "api/load_model.h"
#include "base/error.h"
#include "data/dataset.h"
#include "graph/compute_in_float32.h"
#include "quant/algorithm.h"
#include "quant/observer.h"
#include "quant/quantize.h"

namespace kaon {
namespace {

/// "name" or "name:option=value…", the options behind each other with `between` between them.
template <typename Named>
Named parse_named(const std::string& text, char between, const std::string& flag) {
  Named named;
  const size_t colon = text.find(':');
  named.name = text.substr(0, colon);
  size_t at = colon == std::string::npos ? text.size() : colon + 1;
  while (at < text.size()) {
    const size_t end = std::min(text.find(between, at), text.size());
    const std::string item = text.substr(at, end - at);
    const size_t equals = item.find('=');
    double value = 0;
    const char* last = item.data() + item.size();
    const auto [stop, error] = std::from_chars(item.data() + std::min(equals, item.size() - 1) + 1, last, value);
    if (equals == std::string::npos || error != std::errc() || stop != last) {
      fail(ErrorCode::InvalidConfig, flag, "'{}' is not of the form option=number", item);
    }
    named.options[item.substr(0, equals)] = value;
    at = end + 1;
  }
  return named;
}

ObserverConfig parse_observer(const std::string& text) {
  auto observer = parse_named<ObserverConfig>(text, ',', "--observer");
  make_observer(observer, TensorSpec{}, "--observer");
  return observer;
}

AlgorithmConfig parse_algorithm(const std::string& text) {
  auto algorithm = parse_named<AlgorithmConfig>(text, ':', "--algorithms");
  check_algorithm(algorithm, "--algorithms");
  return algorithm;
}

std::unique_ptr<Dataset> open_limited(const std::filesystem::path& path, const Graph& graph, const DataOptions& options,
                                      int64_t limit) {
  return open_dataset(path, graph.required_inputs(), {.limit = limit, .tokenizer = options.tokenizer});
}

}  // namespace

bool asks_to_quantize(const QuantOptions& options) { return !options.scheme.empty() || !options.config.empty(); }

void check_names(const QuantOptions& options) {
  if (!options.scheme.empty()) scheme_config(options.scheme);
  if (!options.layout.empty()) enum_value<Layout>(options.layout, "--layout");
  if (!options.observer.empty()) parse_observer(options.observer);
  for (const std::string& text : options.algorithms) parse_algorithm(text);
}

Config config_of(const QuantOptions& options) {
  if (!asks_to_quantize(options)) {
    fail(ErrorCode::InvalidConfig, "", "give a scheme (`kaon schemes` lists them), a config file, or both");
  }
  Config config = options.scheme.empty() ? Config{} : scheme_config(options.scheme);
  if (!options.config.empty()) config = read_config(options.config.string(), std::move(config));
  if (!options.layout.empty()) set_layout(config, enum_value<Layout>(options.layout, "--layout"));
  if (!options.observer.empty()) set_observer(config, parse_observer(options.observer));
  config.exclude.insert(config.exclude.end(), options.exclude.begin(), options.exclude.end());
  for (const std::string& text : options.algorithms) config.algorithms.push_back(parse_algorithm(text));
  return config;
}

std::string config_name(const QuantOptions& options) {
  if (options.config.empty()) return options.scheme;
  return (options.scheme.empty() ? "" : options.scheme + "+") + options.config.stem().string();
}

nlohmann::ordered_json algorithms_json(const std::vector<AlgorithmReport>& reports) {
  auto json = nlohmann::ordered_json::array();
  for (const AlgorithmReport& report : reports) {
    json.push_back(
        {{"name", report.name}, {"changed", report.changed}, {"seconds", report.seconds}, {"notes", report.notes}});
  }
  return json;
}

std::string make_inputs_constant(Model& model) {
  Graph& graph = model.graph;
  std::vector<std::string> names;
  for (const ValueInfo& info : graph.inputs) {
    if (graph.find_initializer(info.name) != nullptr) names.push_back(info.name);
  }
  if (names.empty()) return "";
  std::erase_if(graph.inputs, [&](const ValueInfo& info) { return graph.find_initializer(info.name) != nullptr; });
  return fmt::format("{} inputs of the model have a value in the file and are constants from here on ({}{})",
                     names.size(), names.front(), names.size() > 1 ? ", …" : "");
}

std::string note_on_halves(const Model& model) {
  if (!computes_in_half(model)) return "";
  return "the model computes in 16 bits; here it computes in float32, and its inputs and outputs keep their types";
}

std::unique_ptr<Dataset> open_data(const DataOptions& options, const Graph& graph) {
  if (options.data.empty()) return nullptr;
  return open_limited(options.data, graph, options, options.limit);
}

std::unique_ptr<Dataset> open_calibration(const DataOptions& options, const Graph& graph) {
  if (!options.calib.empty()) {
    return open_limited(options.calib, graph, options, options.calib_limit);
  }
  if (options.data.empty()) return nullptr;
  return open_limited(options.data, graph, options, options.calib_limit > 0 ? options.calib_limit : options.limit);
}

QuantizedModel quantize_for(const std::filesystem::path& path, const Model& model, const Config& asked,
                            const DataOptions& data, Progress& progress, bool allow_non_finite) try {
  const Config config = is_language_model(path) ? for_language_model(asked, lm::LanguageModel::open(path)) : asked;
  const std::unique_ptr<Dataset> calibration =
      needs_calibration(config) ? open_calibration(data, model.graph) : nullptr;
  QuantizeSettings settings;
  settings.batch = data.batch;
  settings.progress = &progress;
  settings.allow_non_finite = allow_non_finite;
  return quantize(model, config, calibration.get(), settings);
} catch (const Error& error) {
  throw Error(error.code(), error.what(), path.string());
}

}  // namespace kaon
