// Transforms before calibration leave the float function of real models as it is on real data, those that they saw and
// others. Text for the recogniser there is none; it gets pieces of photographs.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "data/dataset.h"
#include "engine/engine.h"
#include "io/files_test.h"
#include "io/onnx/onnx.h"
#include "quant/quantize.h"
#include "quant/schemes.h"

namespace kaon {
namespace {

const std::filesystem::path kModels = KAON_SOURCE_DIR "/../shared/models";

const std::filesystem::path kData = KAON_SOURCE_DIR "/../shared/data";

/// A folder's images as a model takes them, without `first` and `limit`.
nlohmann::json images(double mean, double deviation, const std::vector<int>& resize = {}) {
  nlohmann::json json = {{"images", (kData / "imagenet" / "val").string()}, {"scale", 1}};
  json["mean"] = mean;
  json["std"] = deviation;
  if (!resize.empty()) json["resize"] = resize;
  return json;
}

nlohmann::json cifar(bool raw) {
  nlohmann::json json = {{"cifar", (kData / "cifar10" / "test_batch.bin").string()}};
  if (raw) {
    json["scale"] = 1;
  } else {
    json["mean"] = {0.485, 0.456, 0.406};
    json["std"] = {0.229, 0.224, 0.225};
  }
  return json;
}

nlohmann::json stories() { return {{"samples", (kData / "text" / "tinystories_ids.npz").string()}}; }

std::unique_ptr<Dataset> samples(nlohmann::json description, int first, int count, const Model& model) {
  description["first"] = first;
  description["limit"] = count;
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "data.json";
  std::ofstream(path) << description;
  return open_dataset(path, model.graph.required_inputs());
}

struct Case {
  const char* file;
  nlohmann::json data;
  const char* algorithm;
  int64_t changed;  ///< at least
  bool absorb = false;
};

class RealModels : public ::testing::TestWithParam<Case> {};

TEST_P(RealModels, ComputeWhatTheyDid) {
  const Case& one = GetParam();
  if (!std::filesystem::exists(kModels / one.file)) {
    std::printf("not run: ../shared/models is not beside the checkout\n");
    return;
  }
  const Model model = read_onnx(kModels / one.file);
  Config config = scheme_config(one.absorb ? "fp8" : "w8");
  config.algorithms = {{one.algorithm}};
  if (one.absorb) config.algorithms[0].options["absorb"] = 1;
  const auto calibration = samples(one.data, 0, 2, model);
  const QuantizedModel quantized = quantize(model, config, calibration.get(), {.batch = 1});
  EXPECT_GE(quantized.algorithms.at(0).changed, one.changed);
  // Those it saw, and others.
  const auto data = samples(one.data, 0, 4, model);
  Engine original(quantized.original), changed(quantized.model);
  for (int64_t sample = 0; sample < data->size(); ++sample) {
    const TensorMap inputs = data->read(sample, 1).inputs;
    const std::vector<Tensor> before = original.run(inputs);
    const std::vector<Tensor> after = changed.run(inputs);
    for (size_t k = 0; k < before.size(); ++k) {
      const std::vector<float> x = before[k].to_float(), y = after[k].to_float();
      double error = 0, energy = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        error += std::pow(static_cast<double>(y[i]) - x[i], 2);
        energy += std::pow(static_cast<double>(x[i]), 2);
      }
      EXPECT_LE(std::sqrt(error), 1e-5 * std::sqrt(energy)) << "sample " << sample << ", output " << k;
    }
  }
}

const char* const kMobileNet = "mobilenetv2_1.0_224_imagenet_fp32.onnx";
const char* const kOcr = "ch_PP-OCRv4_rec_infer.onnx";

INSTANTIATE_TEST_SUITE_P(All, RealModels,
                         ::testing::Values(Case{"resnet20_cifar10_fp32.onnx", cifar(false), "cle", 9},
                                           Case{"resnet56_cifar10_fp32.onnx", cifar(false), "cle", 27},
                                           Case{"resnet8_cifar10_mlperftiny_fp32.onnx", cifar(true), "cle", 1},
                                           Case{kMobileNet, images(127.5, 127.5), "cle", 30},
                                           Case{kMobileNet, images(127.5, 127.5), "cle", 30, true},
                                           Case{"etinynet1.0_imagenet_fp32.onnx", images(128, 1), "cle", 1},
                                           Case{"ultraface_RFB-320.onnx", images(127, 128, {240, 320}), "cle", 1},
                                           Case{kOcr, images(127.5, 127.5, {48, 160}), "cle", 0},
                                           Case{kOcr, images(127.5, 127.5, {48, 160}), "smooth_quant", 1},
                                           Case{"stories260K/model.onnx", stories(), "smooth_quant", 10},
                                           Case{"stories260K/model.onnx", stories(), "awq", 10}),
                         [](const auto& one) {
                           std::string name = std::string(one.param.file) + "_" + one.param.algorithm;
                           if (one.param.absorb) name += "_absorb";
                           for (char& letter : name)
                             letter = std::isalnum(static_cast<unsigned char>(letter)) != 0 ? letter : '_';
                           return name;
                         });

}  // namespace
}  // namespace kaon
