// Patients and their cures on real models: the share of images that are taken for something else, beside the share that
// is to be reached, and the seconds of the cure beside those allowed.
#include <fmt/core.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/stopwatch.h"
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

std::vector<std::string> command(const Patient& patient, const char* verb) {
  return {KAON_PROGRAM,
          verb,
          kModels / patient.model,
          "--config",
          written("config.json", nlohmann::json::parse(patient.config)),
          "--algorithms",
          patient.algorithms,
          "--calib",
          written("calib.json", samples(patient, true)),
          "--json",
          "-q"};
}

/// Of a hundred images.
double taken_for_something_else(const Patient& patient) {
  std::vector<std::string> call = command(patient, "eval");
  const fs::path data = written("val.json", samples(patient, false));
  call.insert(call.end(), {"--data", data, "--metric", "top1"});
  return 100 * (1 - nlohmann::json::parse(output_of(call)).at("metrics").at("top1").get<double>());
}

double seconds(const Patient& patient) {
  std::vector<std::string> call = command(patient, "quantize");
  call.insert(call.end(), {"-o", fs::temp_directory_path() / "kaon_bench_cures.onnx"});
  return nlohmann::json::parse(output_of(call)).at("seconds").get<double>();
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

/// Seconds of the pass that collects the statistics of all layers, and of as many float forwards as it may cost.
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
    const Stopwatch plain;
    for (int64_t first = 0; first < data.size(); first += kBatch) engine.run(data.read(first, kBatch).inputs);
    forward = i == 0 ? plain.seconds() : std::min(forward, plain.seconds());
    const Stopwatch watched;
    collect_statistics(model, requests, data, {.batch = kBatch});
    least = i == 0 ? watched.seconds() : std::min(least, watched.seconds());
  }
  return {least, kForwards * forward};
}

const bool kAdded = add([](Cases& cases) {
  const fs::path mobilenet = kModels / "mobilenetv2_1.0_224_imagenet_fp32.onnx";
  if (fs::exists(mobilenet)) {
    cases.push_back({.name = "mobilenetv2/statistics", .peer_name = "2.5 float forwards", .unit = "s", .prepare = [=] {
                       return Work{.measure = [=] { return statistics_pass(mobilenet); }};
                     }});
  }
  for (const Patient& patient : kPatients) {
    if (!fs::exists(kModels / patient.model)) {
      fmt::print(stderr, "no {} beside the checkout: {} is not measured\n", patient.model, patient.name);
      continue;
    }
    cases.push_back({.name = patient.name, .peer_name = "to reach", .unit = "% wrong", .prepare = [&patient] {
                       return Work{.measure = [&patient] {
                         return std::pair(taken_for_something_else(patient), 100 * (1 - patient.to_reach));
                       }};
                     }});
    if (patient.seconds == 0) continue;
    cases.push_back(
        {.name = fmt::format("{}/seconds", patient.name), .peer_name = "allowed", .unit = "s", .prepare = [&patient] {
           return Work{.measure = [&patient] { return std::pair(seconds(patient), patient.seconds); }};
         }});
  }
});

}  // namespace

}  // namespace kaon::bench
