// Patients and their cures on real models: the share of images that are taken for something else, beside the share that
// is to be reached, the memory of it all beside a GiB, and the seconds of the cure beside those allowed.
#include <fmt/core.h>

#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "bench.h"
#include "child.h"
#include "engine/engine.h"
#include "graph/pass.h"
#include "io/onnx/onnx.h"
#include "quant/layer_statistics.h"

namespace kaon::bench {

namespace {

namespace fs = std::filesystem;

const fs::path kModels = KAON_MODELS;
const fs::path kData = kModels / ".." / "data";
constexpr double kMostMib = 1024;

/// ImageNetRaw: as it was trained without scaling.
enum class Pictures { Cifar, ImageNet, ImageNetRaw };

struct Patient {
  const char* name;
  const char* model;
  const char* config;  ///< without algorithms
  const char* algorithms;
  Pictures pictures;
  double to_reach;  ///< top-1
  double seconds;   ///< for the cure; 0: no limit is set
};

const Patient kPatients[] = {
    {"resnet20/int4 per tensor/adaround", "resnet20_cifar10_fp32.onnx", R"({"global": {"weight": {"format": "int4"}}})",
     "range_search,adaround", Pictures::Cifar, 0.914, 20},
    {"resnet20/int4 per tensor/gptq", "resnet20_cifar10_fp32.onnx", R"({"global": {"weight": {"format": "int4"}}})",
     "range_search,gptq", Pictures::Cifar, 0.914, 20},
    {"resnet20/w4c", "resnet20_cifar10_fp32.onnx", R"({"scheme": "w4c"})", "range_search,adaround", Pictures::Cifar,
     0.914, 0},
    {"resnet56/w4c", "resnet56_cifar10_fp32.onnx", R"({"scheme": "w4c"})", "range_search,adaround", Pictures::Cifar,
     0.930, 0},
    {"mobilenetv2/w8a8", "mobilenetv2_1.0_224_imagenet_fp32.onnx", R"({"scheme": "w8a8"})", "cle", Pictures::ImageNet,
     0.65, 0},
    {"mobilenetv2/w4g32", "mobilenetv2_1.0_224_imagenet_fp32.onnx", R"({"scheme": "w4g32"})", "bias_correction",
     Pictures::ImageNet, 0.68, 0},
    {"mobilenetv2/fp8", "mobilenetv2_1.0_224_imagenet_fp32.onnx", R"({"scheme": "fp8"})",
     "cle:absorb=1,adaround,bias_correction", Pictures::ImageNet, 0.66, 0},
    {"etinynet/w4c", "etinynet1.0_imagenet_fp32.onnx", R"({"scheme": "w4c"})",
     "range_search,adaround,bias_correction,bn_reestimation", Pictures::ImageNetRaw, 0.50, 0},
};

/// A file with `json` that lasts as long as the machine's temporary ones.
fs::path written(const std::string& name, const nlohmann::json& json) {
  const fs::path path = fs::temp_directory_path() / ("kaon_bench_cures_" + name);
  std::ofstream(path) << json;
  return path;
}

nlohmann::json samples(const Patient& patient, bool calibration) {
  if (patient.pictures == Pictures::Cifar) {
    return {{"cifar", (kData / "cifar10" / "test_batch.bin").string()},
            {"first", calibration ? 0 : 1000},
            {"limit", calibration ? 256 : 9000},
            {"mean", {0.485, 0.456, 0.406}},
            {"std", {0.229, 0.224, 0.225}}};
  }
  const fs::path images = kData / "imagenet" / (calibration ? "calib" : "val");
  nlohmann::json json = {{"images", images.string()}, {"scale", 1}, {"crop", 224}, {"limit", calibration ? 100 : 1000}};
  const bool raw = patient.pictures == Pictures::ImageNetRaw;
  json["mean"] = std::vector<double>(3, raw ? 128 : 127.5);
  json["std"] = std::vector<double>(3, raw ? 1 : 127.5);
  if (!calibration) json["labels"] = (kData / "imagenet" / "val_labels.txt").string();
  return json;
}

std::vector<std::string> command(const Patient& patient, const fs::path& model, const char* verb) {
  std::vector<std::string> call = {KAON_PROGRAM,
                                   verb,
                                   model,
                                   "--config",
                                   written("config.json", nlohmann::json::parse(patient.config)),
                                   "--calib",
                                   written("calib.json", samples(patient, true)),
                                   "--json",
                                   "-q"};
  if (patient.algorithms[0] != '\0') call.insert(call.end(), {"--algorithms", patient.algorithms});
  return call;
}

struct Outcome {
  double wrong = 0;  ///< of a hundred images
  double mib = 0;
};

Outcome evaluate(const Patient& patient, const fs::path& model) {
  std::vector<std::string> call = command(patient, model, "eval");
  const fs::path data = written("val.json", samples(patient, false));
  call.insert(call.end(), {"--data", data, "--metric", "top1"});
  const nlohmann::json said = nlohmann::json::parse(output_of(call));
  return {100 * (1 - said.at("metrics").at("top1").get<double>()), said.at("peak_mb").get<double>()};
}

/// Once for the rows that ask for it.
const Outcome& outcome(const Patient& patient) {
  static std::map<std::string, Outcome> known;
  const auto [found, added] = known.try_emplace(patient.name);
  if (added) found->second = evaluate(patient, kModels / patient.model);
  return found->second;
}

double seconds(const Patient& patient) {
  std::vector<std::string> call = command(patient, kModels / patient.model, "quantize");
  call.insert(call.end(), {"-o", fs::temp_directory_path() / "kaon_bench_cures.onnx"});
  return nlohmann::json::parse(output_of(call)).at("seconds").get<double>();
}

void scale_channels(Graph& graph, const std::string& constant, int64_t axis, std::span<const float> factors) {
  Tensor& tensor = graph.find_initializer(constant)->tensor;
  const int64_t inner = element_count(std::span(tensor.shape()).subspan(static_cast<size_t>(axis) + 1));
  std::vector<float> values = tensor.to_float();
  for (size_t i = 0; i < values.size(); ++i) values[i] *= factors[i / static_cast<size_t>(inner) % factors.size()];
  tensor = Tensor::of(tensor.shape(), values);
}

/// The model with every channel between two convolutions multiplied by a power of two, and what reads it divided.
fs::path planted(const char* file) {
  Model model = read_onnx(kModels / file);
  Graph& graph = model.graph;
  const Uses uses(graph);
  const std::vector<Layer> found = layers(graph);
  std::mt19937 random(1);
  for (const Layer& layer : found) {
    const std::vector<int64_t>& readers = uses.consumers(layer.output);
    if (layer.bias.empty() || readers.size() != 1) continue;
    const Node& relu = graph.nodes[static_cast<size_t>(readers[0])];
    if (relu.op != "Relu" || uses.consumers(relu.outputs[0]).size() != 1) continue;
    const auto next = std::ranges::find(found, relu.outputs[0], &Layer::input);
    if (next == found.end()) continue;
    std::vector<float> factors(static_cast<size_t>(layer.weight_shape[0]));
    for (float& factor : factors) factor = std::ldexp(1.0F, static_cast<int>(random() % 13) - 6);
    scale_channels(graph, layer.weight, 0, factors);
    scale_channels(graph, layer.bias, 0, factors);
    for (float& factor : factors) factor = 1 / factor;
    scale_channels(graph, next->weight, 1, factors);
  }
  const fs::path path = fs::temp_directory_path() / "kaon_bench_cures_planted.onnx";
  write_onnx(model, path);
  return path;
}

/// The planted model with `cle` beside the healthy one without, and half a point.
std::pair<double, double> planted_beside_healthy(const char* file) {
  const Patient healthy{"", file, R"({"scheme": "w8a8"})", "", Pictures::Cifar, 0, 0};
  Patient sick = healthy;
  sick.algorithms = "cle";
  return {evaluate(sick, planted(file)).wrong, evaluate(healthy, kModels / file).wrong + 0.5};
}

/// Images of noise: how long a pass takes does not depend on what they show.
class Noise : public Dataset {
 public:
  Noise(std::string input, int64_t samples) : input_(std::move(input)), samples_(samples) {
    std::mt19937 random(1);
    std::uniform_real_distribution<float> even(-1, 1);
    for (float& value : image_) value = even(random);
  }
  int64_t size() const override { return samples_; }
  bool has_labels() const override { return false; }
  Batch read(int64_t, int64_t count) const override {
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i) values.insert(values.end(), image_.begin(), image_.end());
    return {{{input_, Tensor::of({count, 3, 224, 224}, values)}}, {}};
  }

 private:
  std::string input_;
  int64_t samples_;
  std::vector<float> image_ = std::vector<float>(3 * 224 * 224);
};

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

/// Seconds of the pass that collects the statistics of all layers, and of as many float forwards as it may cost: those
/// of the processor, on one thread, so that other programs at work do not count.
std::pair<double, double> statistics_pass(const fs::path& path) {
  constexpr double kForwards = 2.5;
  constexpr int64_t kBatch = 8;
  Model model = read_onnx(path);
  run_passes(model, {evaluate_node});
  std::vector<StatisticsRequest> requests;
  for (const Layer& layer : layers(model.graph)) {
    const LayerProduct product = product_of(model.graph, layer);
    if (product.refused.empty()) requests.push_back({layer.name, layer.input, product});
  }
  const Noise data(model.graph.required_inputs().at(0).name, 32);
  Engine engine(model);
  engine.run(data.read(0, kBatch).inputs);
  double least = 0, forward = 0;
  for (int i = 0; i < 3; ++i) {
    const double begin = processor_seconds();
    for (int64_t first = 0; first < data.size(); first += kBatch) engine.run(data.read(first, kBatch).inputs);
    const double between = processor_seconds();
    collect_statistics(model, requests, data, {.batch = kBatch});
    const double end = processor_seconds();
    forward = i == 0 ? between - begin : std::min(forward, between - begin);
    least = i == 0 ? end - between : std::min(least, end - between);
  }
  return {least, kForwards * forward};
}

const bool kAdded = add([](Cases& cases) {
  const auto row = [&](const std::string& name, const char* beside, const char* unit,
                       std::function<std::pair<double, double>()> measure, int threads = 0) {
    cases.push_back({.name = name,
                     .peer_name = beside,
                     .unit = unit,
                     .threads = threads,
                     .prepare = [measure = std::move(measure)] { return Work{.measure = measure}; }});
  };
  const fs::path mobilenet = kModels / "mobilenetv2_1.0_224_imagenet_fp32.onnx";
  if (fs::exists(mobilenet)) {
    row(
        "mobilenetv2/statistics", "2.5 float forwards", "s", [=] { return statistics_pass(mobilenet); }, 1);
  }
  for (const Patient& patient : kPatients) {
    if (!fs::exists(kModels / patient.model)) {
      fmt::print(stderr, "no {} beside the checkout: {} is not measured\n", patient.model, patient.name);
      continue;
    }
    const std::string name = patient.name;
    row(name, "to reach", "% wrong", [&] { return std::pair(outcome(patient).wrong, 100 * (1 - patient.to_reach)); });
    row(name + "/memory", "allowed", "MiB", [&] { return std::pair(outcome(patient).mib, kMostMib); });
    if (patient.seconds == 0) continue;
    row(name + "/seconds", "allowed", "s", [&] { return std::pair(seconds(patient), patient.seconds); });
  }
  for (const char* name : {"resnet20", "resnet56"}) {
    const std::string file = fmt::format("{}_cifar10_fp32.onnx", name);
    if (!fs::exists(kModels / file)) continue;
    row(fmt::format("{}/planted/w8a8", name), "healthy + 0.5", "% wrong",
        [file] { return planted_beside_healthy(file.c_str()); });
  }
});

}  // namespace

}  // namespace kaon::bench
