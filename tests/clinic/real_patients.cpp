#include "real_patients.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "data/dataset.h"
#include "graph/layer.h"
#include "io/files_test.h"
#include "io/onnx/onnx.h"
#include "quant/schemes.h"

namespace kaon::clinic {
namespace {

namespace fs = std::filesystem;

const fs::path kShared = KAON_SOURCE_DIR "/../shared";

struct RealModel {
  std::string name;
  std::string file;
  nlohmann::json data, calibration;  ///< descriptions, without `first` and `limit`
  int64_t samples = 0, calibration_samples = 0;
  bool language = false;
};

nlohmann::json cifar(bool raw) {
  nlohmann::json json = {{"cifar", (kShared / "data" / "cifar10" / "test_batch.bin").string()}};
  if (raw) {
    json["scale"] = 1;
  } else {
    json["mean"] = {0.485, 0.456, 0.406};
    json["std"] = {0.229, 0.224, 0.225};
  }
  return json;
}

nlohmann::json imagenet(const char* folder, double mean, double std) {
  const fs::path images = kShared / "data" / "imagenet";
  return {{"images", (images / folder).string()},
          {"labels", (images / (std::string(folder) + "_labels.txt")).string()},
          {"scale", 1},
          {"mean", mean},
          {"std", std},
          {"crop", 224}};
}

const std::vector<RealModel>& all() {
  static const std::vector<RealModel> models = [] {
    const nlohmann::json text = {{"samples", (kShared / "data" / "text" / "tinystories_ids.npz").string()}};
    return std::vector<RealModel>{
        {"resnet8", "resnet8_cifar10_mlperftiny_fp32.onnx", cifar(true), cifar(true), 512, 64},
        {"resnet20", "resnet20_cifar10_fp32.onnx", cifar(false), cifar(false), 512, 64},
        {"stories260K", "stories260K/model.onnx", text, text, 32, 16, true},
        {"mobilenetv2", "mobilenetv2_1.0_224_imagenet_fp32.onnx", imagenet("val", 127.5, 127.5),
         imagenet("calib", 127.5, 127.5), 128, 32},
        {"etinynet", "etinynet1.0_imagenet_fp32.onnx", imagenet("val", 128, 1), imagenet("calib", 128, 1), 128, 32},
    };
  }();
  return models;
}

const RealModel& find(const std::string& name) {
  const auto found = std::ranges::find(all(), name, &RealModel::name);
  if (found == all().end()) fail(ErrorCode::InvalidInput, name, "no such model");
  return *found;
}

std::shared_ptr<const Dataset> samples(nlohmann::json description, int64_t first, int64_t count, const Model& model) {
  description["first"] = first;
  description["limit"] = count;
  const TemporaryFolder folder;
  const fs::path path = folder / "data.json";
  std::ofstream(path) << description;
  return open_dataset(path, model.graph.required_inputs());
}

/// Samples [first, first + count) multiplied by `factor`.
class Scaled : public Dataset {
 public:
  Scaled(std::shared_ptr<const Dataset> whole, float factor, int64_t first, int64_t count)
      : whole_(std::move(whole)), factor_(factor), first_(first), count_(count) {}
  int64_t size() const override { return whole_->size(); }
  bool has_labels() const override { return whole_->has_labels(); }
  Batch read(int64_t first, int64_t count) const override {
    Batch batch = whole_->read(first, count);
    for (auto& [name, tensor] : batch.inputs) {
      std::vector<float> values = tensor.to_float();
      const int64_t each = std::ssize(values) / count;
      for (int64_t i = 0; i < std::ssize(values); ++i) {
        const int64_t sample = first + i / each;
        if (sample >= first_ && sample < first_ + count_) values[static_cast<size_t>(i)] *= factor_;
      }
      tensor = Tensor::of(tensor.shape(), values);
    }
    return batch;
  }

 private:
  std::shared_ptr<const Dataset> whole_;
  float factor_;
  int64_t first_, count_;
};

/// Two convolutions with nothing but a Relu or Clip between that others read.
struct Joined {
  Layer first, next;
  bool clipped = false;
};

std::vector<Joined> joined_layers(const Graph& graph) {
  const std::vector<Layer> found = layers(graph);
  const Uses uses(graph);
  std::vector<Joined> joined;
  for (const Layer& first : found) {
    if (first.op != "Conv" || first.bias.empty() || uses.consumers(first.output).size() != 1) continue;
    const Node& between = graph.nodes[static_cast<size_t>(uses.consumers(first.output)[0])];
    if (between.op != "Relu") continue;
    for (const Layer& next : found) {
      const bool whole = next.op == "Conv" && next.weight_shape[1] == first.weight_shape[0];
      if (next.input == between.outputs[0] && whole && uses.consumers(next.input).size() == 1) {
        joined.push_back({first, next});
      }
    }
  }
  return joined;
}

void scale_channel(Graph& graph, const std::string& constant, int64_t axis, int64_t index, float factor) {
  Tensor& tensor = graph.find_initializer(constant)->tensor;
  std::vector<float> values = tensor.to_float();
  const Shape& shape = tensor.shape();
  const int64_t inner = element_count(std::span(shape).subspan(static_cast<size_t>(axis) + 1));
  for (int64_t i = 0; i < std::ssize(values); ++i) {
    if (i / inner % shape[static_cast<size_t>(axis)] == index) values[static_cast<size_t>(i)] *= factor;
  }
  tensor = Tensor::of(shape, values);
}

void set_weight(Config& config, const std::string& layer, const char* format, Rounding rounding = Rounding::HalfEven) {
  Spec spec;
  spec.format = format;
  spec.granularity = Granularity::PerChannel;
  spec.rounding = rounding;
  LayerRule rule;
  rule.weight = spec;
  config.by_name.emplace_back(layer, rule);
}

}  // namespace

const std::vector<std::string>& real_models() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const RealModel& model : all()) list.push_back(model.name);
    return list;
  }();
  return names;
}

fs::path file_of(const std::string& model) { return kShared / "models" / find(model).file; }

std::vector<std::string> diseases_of(const std::string& model) {
  if (find(model).language) return {"2 bits", "healthy"};
  std::vector<std::string> list = {"2 bits",      "weights rounded down", "calibration scaled",
                                   "data scaled", "freak calibration",    "coarse activations"};
  if (model.starts_with("resnet")) list.insert(list.begin(), {"channels rescaled", "dead channel"});
  list.push_back("healthy");
  return list;
}

Patient make_real_patient(const std::string& name, const std::string& disease, uint64_t seed) {
  const RealModel& real = find(name);
  std::mt19937_64 random(seed * 104729 + 7);
  const auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  Patient patient;
  patient.name = fmt::format("{}, {} {}", name, disease, seed);
  patient.model = read_onnx(file_of(name));
  Graph& graph = patient.model.graph;
  const bool apart = real.data == real.calibration;
  patient.calibration = samples(real.calibration, 0, real.calibration_samples, patient.model);
  patient.data = samples(real.data, apart ? real.calibration_samples : 0, real.samples, patient.model);
  patient.config = scheme_config(real.language ? "w8c" : "w8a8c");
  std::vector<Layer> own = layers(graph);
  std::erase_if(own,
                [](const Layer& layer) { return layer.op != "Conv" && layer.op != "MatMul" && layer.op != "Gemm"; });
  const auto any_layer = [&] { return own[static_cast<size_t>(pick(0, std::ssize(own) - 1))].name; };
  if (disease == "channels rescaled" || disease == "dead channel") {
    const std::vector<Joined> joined = joined_layers(graph);
    if (joined.empty()) fail(ErrorCode::InvalidInput, name, "has no two layers to rescale");
    const Joined& pair = joined[static_cast<size_t>(pick(0, std::ssize(joined) - 1))];
    const int64_t channels = pair.first.weight_shape[0];
    patient.config = scheme_config("w8a8");
    if (disease == "dead channel") {
      const int64_t channel = pick(0, channels - 1);
      scale_channel(graph, pair.first.weight, 0, channel, 0);
      scale_channel(graph, pair.first.bias, 0, channel, 0);
      scale_channel(graph, pair.next.weight, 1, channel, 500);
      patient.causes = {CauseKind::WeightOutliers, CauseKind::WeightChannelImbalance};
      patient.layers = {pair.next.name};
    } else {
      for (int64_t c = 0; c < channels; ++c) {
        const float factor = std::exp2(static_cast<float>(pick(-60, 60)) / 10);
        scale_channel(graph, pair.first.weight, 0, c, factor);
        scale_channel(graph, pair.first.bias, 0, c, factor);
        scale_channel(graph, pair.next.weight, 1, c, 1 / factor);
      }
      patient.causes = {CauseKind::WeightChannelImbalance};
      patient.layers = {pair.first.name, pair.next.name};
    }
  } else if (disease == "2 bits") {
    patient.layers = {any_layer()};
    set_weight(patient.config, patient.layers[0], "int2");
    patient.causes = {CauseKind::WeightResolution};
  } else if (disease == "weights rounded down") {
    patient.layers = {any_layer()};
    set_weight(patient.config, patient.layers[0], "int4", Rounding::Floor);
    patient.causes = {CauseKind::BiasShift};
  } else if (disease == "calibration scaled") {
    patient.calibration =
        std::make_shared<Scaled>(patient.calibration, pick(0, 1) == 0 ? 0.05F : 60.0F, 0, patient.calibration->size());
    patient.causes = {CauseKind::CalibrationMismatch};
  } else if (disease == "data scaled") {
    patient.data = std::make_shared<Scaled>(patient.data, 1 / 255.0F, 0, patient.data->size());
    patient.causes = {CauseKind::DataMismatch};
    patient.verdict = Verdict::DataMismatch;
  } else if (disease == "freak calibration") {
    patient.calibration = std::make_shared<Scaled>(patient.calibration, 100, pick(0, 20), 3);
    patient.causes = {CauseKind::CalibrationMismatch};
  } else if (disease == "coarse activations") {
    for (SlotRule* slot : {&patient.config.global.input, &patient.config.global.output}) slot->spec->format = "uint3";
    patient.causes = {CauseKind::ActivationResolution};
  } else {
    patient.verdict = Verdict::Healthy;
  }
  return patient;
}

}  // namespace kaon::clinic
