// debug_dump MODEL DATA BATCH OUT_FOLDER SCHEME: all values that `kaon debug` compares, for a second computation.
//   plan.json   [{id, tensor, kind, format, scale, zero_point, axis}] of every quantizer
//   values.npz  BATCH:ID:r, :x and :q of activations (float run, before and behind the quantizer in the quantized run),
//               ID:x and ID:q of weights and biases, BATCH:in:NAME of the inputs
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/dataset.h"
#include "engine/engine.h"
#include "io/npy/npy.h"
#include "io/onnx/onnx.h"
#include "quant/quantize.h"
#include "quant/schemes.h"
#include "quant/simulate.h"

namespace {

/// The values `names` of one run, each kept to the end.
std::vector<kaon::Tensor> values_of(const kaon::Engine& engine, const kaon::TensorMap& inputs,
                                    const std::vector<std::string>& names) {
  kaon::Frame frame = engine.start(inputs, names);
  frame.finish();
  std::vector<kaon::Tensor> values;
  for (const std::string& name : names) values.push_back(frame.value(name));
  return values;
}

void dump(const kaon::QuantizedModel& quantized, const kaon::Dataset& data, int64_t batch,
          const std::filesystem::path& folder) {
  const kaon::Model simulated = kaon::simulate(quantized);
  const kaon::Engine exact_engine(quantized.model);
  const kaon::Engine simulated_engine(simulated);
  kaon::NamedTensors values;
  nlohmann::ordered_json plan = nlohmann::ordered_json::array();
  std::vector<std::string> raw, made, exact;
  std::vector<int64_t> ids;
  for (const kaon::Quantizer& quantizer : quantized.quantizers) {
    plan.push_back({{"id", quantizer.id},
                    {"tensor", quantizer.tensor},
                    {"kind", name_of(quantizer.kind)},
                    {"format", quantizer.spec.format},
                    {"scale", quantizer.params.scale},
                    {"zero_point", quantizer.params.zero_point},
                    {"axis", quantizer.spec.axis}});
    if (!quantizer.is_activation()) {
      const std::string name = kaon::quantized_name(quantizer.tensor, quantizer.id);
      values.emplace_back(fmt::format("{}:x", quantizer.id),
                          quantized.model.graph.find_initializer(quantizer.tensor)->tensor);
      values.emplace_back(fmt::format("{}:q", quantizer.id), simulated.graph.find_initializer(name)->tensor);
      continue;
    }
    ids.push_back(quantizer.id);
    exact.push_back(quantizer.tensor);
    made.push_back(kaon::simulated_value(quantized, quantizer));
    raw.push_back(made.back() == quantizer.tensor ? kaon::raw_name(quantizer.tensor) : quantizer.tensor);
  }
  for (int64_t first = 0, b = 0; first < data.size(); first += batch, ++b) {
    const kaon::TensorMap inputs = data.read(first, std::min(batch, data.size() - first)).inputs;
    for (const auto& [name, tensor] : inputs) values.emplace_back(fmt::format("{}:in:{}", b, name), tensor);
    const std::vector<kaon::Tensor> r = values_of(exact_engine, inputs, exact);
    const std::vector<kaon::Tensor> x = values_of(simulated_engine, inputs, raw);
    const std::vector<kaon::Tensor> q = values_of(simulated_engine, inputs, made);
    for (size_t i = 0; i < ids.size(); ++i) {
      values.emplace_back(fmt::format("{}:{}:r", b, ids[i]), r[i]);
      values.emplace_back(fmt::format("{}:{}:x", b, ids[i]), x[i]);
      values.emplace_back(fmt::format("{}:{}:q", b, ids[i]), q[i]);
    }
  }
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "plan.json") << plan.dump(1);
  kaon::write_npz(values, folder / "values.npz");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    fmt::print(stderr, "usage: debug_dump MODEL DATA BATCH OUT_FOLDER SCHEME\n");
    return 2;
  }
  try {
    const kaon::Model model = kaon::read_onnx(std::string(argv[1]));
    const auto data = kaon::open_dataset(argv[2], model.graph.required_inputs());
    const int64_t batch = kaon::batch_for(model.graph, std::stoll(argv[3]), *data);
    kaon::QuantizeSettings settings;
    settings.batch = batch;
    dump(kaon::quantize(model, kaon::scheme_config(argv[5]), data.get(), settings), *data, batch, argv[4]);
  } catch (const kaon::Error& error) {
    fmt::print(stderr, "{}: {}\n", kaon::to_string(error.code()), error.what());
    return 1;
  }
  return 0;
}
