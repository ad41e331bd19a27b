// simulate_dump MODEL CALIB DATA WHOLE OUT_FOLDER SCHEME...: quantizes, exports and simulates.
// A scheme may name algorithms, as --algorithms does: "w8a8+cle:absorb=1+bias_correction". Each gets a folder with
// model.onnx, values.npz (inputs and outputs, sample by sample, "0:name", and for the first WHOLE samples every value
// at a quantizer) and plan.json (the quantizers, and under which name the simulation keeps what they make).
// tests/oracles compares them with what ONNX Runtime computes from the file.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "api/quant_options.h"
#include "base/error.h"
#include "data/dataset.h"
#include "engine/engine.h"
#include "export/export.h"
#include "io/npy/npy.h"
#include "io/onnx/onnx.h"
#include "quant/quantize.h"
#include "quant/simulate.h"

namespace {

using Json = nlohmann::ordered_json;

/// Makes `value` an output of the graph.
void show(kaon::Graph& graph, const std::string& value) {
  const auto same = [&](const kaon::ValueInfo& info) { return info.name == value; };
  if (std::any_of(graph.outputs.begin(), graph.outputs.end(), same)) return;
  graph.outputs.emplace_back();
  graph.outputs.back().name = value;
}

/// The values of `quantized` that are compared become outputs of `simulated`.
Json plan_of(const kaon::QuantizedModel& quantized, kaon::Graph& simulated) {
  Json activations = Json::array();
  Json weights = Json::array();
  for (const kaon::Quantizer& quantizer : quantized.quantizers) {
    Json row = {{"label", quantizer.label()}, {"tensor", quantizer.tensor}};
    if (!quantizer.is_activation()) {
      row["simulated"] = kaon::quantized_name(quantizer.tensor, quantizer.id);
      weights.push_back(std::move(row));
      continue;
    }
    row["simulated"] = kaon::simulated_value(quantized, quantizer);
    row["dynamic"] = quantizer.dynamic;
    row["moved"] = quantizer.moved;
    show(simulated, row["simulated"]);
    if (quantizer.dynamic) show(simulated, quantizer.tensor);
    for (const std::string& value : quantizer.moved) show(simulated, value);
    activations.push_back(std::move(row));
  }
  return {{"activations", std::move(activations)}, {"weights", std::move(weights)}};
}

kaon::Config config_of(const std::string& scheme) {
  size_t end = scheme.find('+');
  kaon::QuantOptions options{.scheme = scheme.substr(0, end)};
  while (end != std::string::npos) {
    const size_t begin = end + 1;
    end = scheme.find('+', begin);
    options.algorithms.push_back(scheme.substr(begin, end - begin));
  }
  return kaon::config_of(options);
}

void dump(const kaon::Model& model, const std::string& scheme, const kaon::Dataset& calibration,
          const kaon::Dataset& data, int64_t whole, const std::filesystem::path& folder) {
  const kaon::QuantizedModel quantized = kaon::quantize(model, config_of(scheme), &calibration);
  const kaon::Exported exported = kaon::export_onnx(quantized);
  std::filesystem::create_directories(folder);
  kaon::write_onnx(exported.model, folder / "model.onnx");
  const kaon::Model simulated = kaon::simulate(quantized);
  kaon::Model shown = simulated;
  Json plan = plan_of(quantized, shown.graph);
  plan["samples"] = data.size();
  plan["whole"] = std::min(whole, data.size());
  plan["notes"] = exported.notes;
  std::ofstream(folder / "plan.json") << plan.dump(1);
  kaon::NamedTensors values;
  for (const Json& row : plan["weights"]) {
    const std::string name = row["simulated"];
    values.emplace_back("w:" + name, simulated.graph.find_initializer(name)->tensor);
  }
  kaon::Engine plain(simulated);
  kaon::Engine showing(std::move(shown));
  for (int64_t i = 0; i < data.size(); ++i) {
    const kaon::Batch batch = data.read(i, 1);
    for (const auto& [name, tensor] : batch.inputs) values.emplace_back(fmt::format("{}:{}", i, name), tensor);
    kaon::Engine& engine = i < whole ? showing : plain;
    const std::vector<kaon::Tensor> outputs = engine.run(batch.inputs);
    for (size_t k = 0; k < outputs.size(); ++k) {
      const std::string& name = engine.model().graph.outputs[k].name;
      if (!batch.inputs.contains(name)) values.emplace_back(fmt::format("{}:{}", i, name), outputs[k]);
    }
  }
  kaon::write_npz(values, folder / "values.npz");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 7) {
    fmt::print(stderr, "usage: simulate_dump MODEL CALIB DATA WHOLE OUT_FOLDER SCHEME...\n");
    return 2;
  }
  try {
    const kaon::Model model = kaon::read_onnx(std::string(argv[1]));
    const std::vector<kaon::ValueInfo> inputs = model.graph.required_inputs();
    const auto calibration = kaon::open_dataset(argv[2], inputs);
    const auto data = kaon::open_dataset(argv[3], inputs);
    for (int i = 6; i < argc; ++i) {
      dump(model, argv[i], *calibration, *data, std::stoll(argv[4]), std::filesystem::path(argv[5]) / argv[i]);
    }
  } catch (const kaon::Error& error) {
    fmt::print(stderr, "{}: {}\n", kaon::to_string(error.code()), error.what());
    return 1;
  }
  return 0;
}
