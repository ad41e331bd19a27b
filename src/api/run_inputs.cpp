#include "api/run_inputs.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "graph/describe.h"
#include "io/npy/npy.h"
#include "io/onnx/test_data.h"

namespace kaon {

namespace fs = std::filesystem;

namespace {

RunInputs read_arrays(const fs::path& path, const Graph& graph) {
  RunInputs inputs;
  std::vector<std::string> names;
  for (auto& [name, tensor] : read_npz(path)) {
    names.push_back(fmt::format("'{}'", name));
    const bool known = std::ranges::any_of(graph.inputs, [&](const ValueInfo& info) { return info.name == name; });
    if (known) {
      inputs.values.insert_or_assign(name, tensor);
    } else {
      inputs.unused.push_back(name);
    }
  }
  const std::vector<ValueInfo> required = graph.required_inputs();
  for (const ValueInfo& info : required) {
    if (inputs.values.contains(info.name)) continue;
    fail(ErrorCode::InvalidInput, path.string(), "holds {}, but the model needs {}",
         names.empty() ? "no arrays" : fmt::format("{}", fmt::join(names, ", ")), describe(required));
  }
  return inputs;
}

RunInputs read_test_data(const fs::path& folder, const Graph& graph) {
  const std::vector<Tensor> given = read_test_tensors(folder, "input");
  RunInputs inputs;
  inputs.expected = read_test_tensors(folder, "output");
  const std::vector<ValueInfo> required = graph.required_inputs();
  const std::vector<ValueInfo>& infos = given.size() == graph.inputs.size() ? graph.inputs : required;
  if (given.size() != infos.size()) {
    fail(ErrorCode::InvalidInput, folder.string(), "holds {} files input_N.pb, but the model needs {}: {}",
         given.size(), required.size(), describe(required));
  }
  if (inputs.expected.size() != graph.outputs.size()) {
    fail(ErrorCode::InvalidInput, folder.string(), "holds {} files output_N.pb, but the model has {} outputs",
         inputs.expected.size(), graph.outputs.size());
  }
  for (size_t i = 0; i < given.size(); ++i) inputs.values.emplace(infos[i].name, as_declared(given[i], infos[i]));
  for (size_t i = 0; i < inputs.expected.size(); ++i) {
    inputs.expected[i] = as_declared(inputs.expected[i], graph.outputs[i]);
  }
  return inputs;
}

}  // namespace

RunInputs read_run_inputs(const fs::path& path, const Graph& graph) {
  if (path.empty()) {
    const std::vector<ValueInfo> required = graph.required_inputs();
    if (required.empty()) return {};
    fail(ErrorCode::InvalidInput, "--input",
         "the model needs {}; give an .npz with arrays of these names, or a "
         "test-data folder",
         describe(required));
  }
  return fs::is_directory(path) ? read_test_data(path, graph) : read_arrays(path, graph);
}

}  // namespace kaon
