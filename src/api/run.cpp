#include "api/run.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "api/load_model.h"
#include "api/output_file.h"
#include "api/run_inputs.h"
#include "base/error.h"
#include "base/memory_usage.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "engine/engine.h"
#include "io/npy/npy.h"

namespace kaon {

namespace {

constexpr double kRelative = 1e-3;
constexpr double kAbsolute = 1e-7;

/// Inputs and whatever nodes make, by the glob, in the graph's order.
std::vector<std::string> matching_values(const Graph& graph, const std::string& glob) {
  std::vector<std::string> names;
  for (const ValueInfo& info : graph.required_inputs()) names.push_back(info.name);
  for (const Node& node : graph.nodes) names.insert(names.end(), node.outputs.begin(), node.outputs.end());
  std::erase_if(names, [&](const std::string& name) { return name.empty() || !glob_match(glob, name); });
  if (names.empty()) fail(ErrorCode::InvalidInput, "--dump", "no value of the model matches '{}'", glob);
  return names;
}

/// What NumPy has no type for becomes float32.
Tensor for_numpy(const Tensor& tensor) {
  switch (tensor.type()) {
    case DType::BFloat16:
    case DType::Float8E4M3FN:
    case DType::Float8E4M3FNUZ:
    case DType::Float8E5M2:
    case DType::Float8E5M2FNUZ:
    case DType::Float8E8M0:
    case DType::Float4E2M1:
    case DType::UInt4:
    case DType::Int4:
    case DType::UInt2:
    case DType::Int2: return Tensor::of<float>(tensor.shape(), tensor.to_float());
    default: return tensor;
  }
}

bool is_wide_float(DType type) {
  return type == DType::Float32 || type == DType::Float64 || type == DType::Float16 || type == DType::BFloat16;
}

std::vector<double> numbers(const Tensor& tensor) {
  if (tensor.type() == DType::Float64) {
    const auto values = tensor.as<double>();
    return {values.begin(), values.end()};
  }
  const std::vector<float> values = tensor.to_float();
  return {values.begin(), values.end()};
}

OutputError compare(const Tensor& got, const Tensor& expected) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  if (got.type() != expected.type() || got.shape() != expected.shape()) return {kInf, kInf, false};
  const bool equal = std::ranges::equal(got.bytes(), expected.bytes());
  if (equal) return {0, 0, got.type() != DType::String || got.strings() == expected.strings()};
  OutputError error{0, 0, is_wide_float(got.type())};
  const std::vector<double> x = numbers(got), y = numbers(expected);
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
    const double gap = std::isfinite(x[i]) && std::isfinite(y[i]) ? std::fabs(x[i] - y[i]) : kInf;
    error.max_abs = std::max(error.max_abs, gap);
    error.max_rel = std::max(error.max_rel, gap / std::max(std::fabs(y[i]), 1e-12));
    error.passed = error.passed && gap <= kAbsolute + kRelative * std::fabs(y[i]);
  }
  return error;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

RunResult run_model(const RunOptions& options) {
  if (options.repeat < 1) fail(ErrorCode::InvalidInput, "--repeat", "is {}; 1 or more is needed", options.repeat);
  if (!options.dump.empty() && options.output.empty()) {
    fail(ErrorCode::InvalidInput, "--dump", "the values go into the output file; name it with -o");
  }
  if (!options.output.empty()) check_output(options.output, {options.model, options.input});
  RunResult result;
  result.startup_mb = peak_memory_mb();
  Engine engine(load_model(options.model));
  const Graph& graph = engine.model().graph;
  const RunInputs inputs = read_run_inputs(options.input, graph);
  result.unused = inputs.unused;

  TensorMap seen;
  Hooks hooks;
  if (!options.dump.empty()) {
    result.dumped = matching_values(graph, options.dump);
    for (const std::string& name : result.dumped) {
      hooks.add(name, [&seen](const std::string& value, const Tensor& tensor) -> std::optional<Tensor> {
        seen.insert_or_assign(value, Tensor::copy_bytes(tensor.type(), tensor.shape(), tensor.bytes()));
        return std::nullopt;
      });
    }
  }

  std::vector<Tensor> outputs = engine.run(inputs.values, hooks);  // plans for these shapes are made in the first run
  std::vector<double> seconds;
  for (int64_t i = 0; i < options.repeat; ++i) {
    const Stopwatch watch;
    outputs = engine.run(inputs.values, hooks);
    seconds.push_back(watch.seconds());
  }
  result.seconds = median(std::move(seconds));

  NamedTensors arrays;
  std::set<std::string> written;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& tensor = outputs[i];
    RunOutput& row = result.outputs.emplace_back();
    row.name = graph.outputs[i].name;
    row.type = name_of(tensor.type());
    row.shape = tensor.shape();
    if (!inputs.expected.empty()) row.error = compare(tensor, inputs.expected[i]);
    if (written.insert(row.name).second) arrays.emplace_back(row.name, tensor);
  }
  if (!inputs.expected.empty()) {
    result.passed = std::ranges::all_of(result.outputs, [](const RunOutput& row) { return row.error->passed; });
  }
  if (!options.output.empty()) {
    for (const std::string& name : result.dumped) {
      if (written.insert(name).second) arrays.emplace_back(name, seen.at(name));
    }
    for (auto& [name, tensor] : arrays) tensor = for_numpy(tensor);
    make_folder_of(options.output);
    write_npz(arrays, options.output);
  }
  result.peak_mb = peak_memory_mb();
  return result;
}

nlohmann::ordered_json to_json(const RunResult& result) {
  nlohmann::ordered_json document;
  document["outputs"] = nlohmann::ordered_json::array();
  for (const RunOutput& output : result.outputs) {
    nlohmann::ordered_json row{{"name", output.name}, {"type", output.type}, {"shape", output.shape}};
    if (output.error) {
      row["max_abs"] = output.error->max_abs;
      row["max_rel"] = output.error->max_rel;
      row["passed"] = output.error->passed;
    }
    document["outputs"].push_back(std::move(row));
  }
  document["seconds"] = result.seconds;
  document["peak_mb"] = result.peak_mb;
  document["startup_mb"] = result.startup_mb;
  if (result.passed) document["passed"] = *result.passed;
  document["dumped"] = result.dumped;
  document["unused"] = result.unused;
  return document;
}

}  // namespace kaon
