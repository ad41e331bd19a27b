// Transforms before calibration leave the float function of real models as it is.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "engine/engine.h"
#include "graph/dataset.h"
#include "io/onnx/onnx.h"
#include "quant/quantize.h"
#include "quant/schemes.h"

namespace kaon {
namespace {

const std::filesystem::path kModels = KAON_SOURCE_DIR "/../shared/models";

/// Two samples: smooth waves with some noise, or token ids.
class Samples : public Dataset {
 public:
  Samples(std::string input, Shape shape, float size)
      : input_(std::move(input)), shape_(std::move(shape)), size_(size) {}
  int64_t size() const override { return 2; }
  bool has_labels() const override { return false; }
  Batch read(int64_t first, int64_t count) const override {
    Shape shape = shape_;
    shape.insert(shape.begin(), count);
    const auto all = static_cast<size_t>(element_count(shape));
    const auto from = static_cast<size_t>(first) * all / static_cast<size_t>(count);
    if (size_ == 0) {
      std::vector<int64_t> ids(all);
      for (size_t i = 0; i < all; ++i) ids[i] = static_cast<int64_t>((from + i) * (from + i) * 7 % 500);
      return {{{input_, Tensor::of<int64_t>(shape, ids)}}, {}};
    }
    std::vector<float> values(all);
    for (size_t i = 0; i < all; ++i) {
      const size_t at = from + i;
      values[i] = size_ * (std::sin(static_cast<float>(at) / 97) + static_cast<float>(at * 7919 % 101) / 202);
    }
    return {{{input_, Tensor::of(shape, values)}}, {}};
  }

 private:
  std::string input_;
  Shape shape_;
  float size_;  ///< 0: ids
};

struct Case {
  const char* file;
  Shape shape;  ///< of a sample
  float size;
  const char* algorithm;
  int64_t changed;  ///< at least
};

class RealModels : public ::testing::TestWithParam<Case> {};

TEST_P(RealModels, ComputeWhatTheyDid) {
  const Case& one = GetParam();
  if (!std::filesystem::exists(kModels / one.file)) {
    std::printf("not run: ../shared/models is not beside the checkout\n");
    return;
  }
  const Model model = read_onnx(kModels / one.file);
  const Samples data(model.graph.required_inputs().at(0).name, one.shape, one.size);
  Config config = scheme_config("w8");
  config.algorithms = {{one.algorithm}};
  const QuantizedModel quantized = quantize(model, config, &data, {.batch = 1});
  EXPECT_GE(quantized.algorithms.at(0).changed, one.changed);
  for (int64_t sample = 0; sample < data.size(); ++sample) {
    const TensorMap inputs = data.read(sample, 1).inputs;
    const std::vector<Tensor> before = Engine(quantized.original).run(inputs);
    const std::vector<Tensor> after = Engine(quantized.model).run(inputs);
    for (size_t k = 0; k < before.size(); ++k) {
      const std::vector<float> x = before[k].to_float(), y = after[k].to_float();
      double error = 0, energy = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        error += std::pow(static_cast<double>(y[i]) - x[i], 2);
        energy += std::pow(static_cast<double>(x[i]), 2);
      }
      EXPECT_LE(std::sqrt(error), 1e-5 * std::sqrt(energy)) << "output " << k;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, RealModels,
                         ::testing::Values(Case{"resnet20_cifar10_fp32.onnx", {3, 32, 32}, 1, "cle", 9},
                                           Case{"resnet56_cifar10_fp32.onnx", {3, 32, 32}, 1, "cle", 27},
                                           Case{"resnet8_cifar10_mlperftiny_fp32.onnx", {3, 32, 32}, 100, "cle", 1},
                                           Case{"mobilenetv2_1.0_224_imagenet_fp32.onnx", {3, 224, 224}, 1, "cle", 30},
                                           Case{"etinynet1.0_imagenet_fp32.onnx", {3, 224, 224}, 80, "cle", 1},
                                           Case{"ultraface_RFB-320.onnx", {3, 240, 320}, 1, "cle", 1},
                                           Case{"ch_PP-OCRv4_rec_infer.onnx", {3, 48, 160}, 1, "cle", 0},
                                           Case{"ch_PP-OCRv4_rec_infer.onnx", {3, 48, 160}, 1, "smooth_quant", 1},
                                           Case{"stories260K/model.onnx", {32}, 0, "smooth_quant", 10},
                                           Case{"stories260K/model.onnx", {32}, 0, "awq", 10}),
                         [](const auto& info) {
                           std::string name = std::string(info.param.file) + "_" + info.param.algorithm;
                           for (char& letter : name)
                             letter = std::isalnum(static_cast<unsigned char>(letter)) != 0 ? letter : '_';
                           return name;
                         });

}  // namespace
}  // namespace kaon
