#include "real_models.h"

#include <random>

namespace kaon::bench {

const std::vector<RealModel>& real_models() {
  static const std::vector<RealModel> kModels{
      {"mobilenetv2", "mobilenetv2_1.0_224_imagenet_fp32.onnx", {3, 224, 224}, {1, 8}},
      {"resnet20", "resnet20_cifar10_fp32.onnx", {3, 32, 32}, {1, 8}},
      {"resnet56", "resnet56_cifar10_fp32.onnx", {3, 32, 32}, {1, 8}},
      {"resnet8", "resnet8_cifar10_mlperftiny_fp32.onnx", {3, 32, 32}, {1, 8}},
      {"etinynet", "etinynet1.0_imagenet_fp32.onnx", {3, 224, 224}, {1, 8}},
      {"ultraface", "ultraface_RFB-320.onnx", {3, 240, 320}, {1}},
      {"pp_ocr", "ch_PP-OCRv4_rec_infer.onnx", {3, 48, 320}, {1}},
      {"stories260k", "stories260K/model.onnx", {128}, {1, 8}, 512},
  };
  return kModels;
}

std::filesystem::path path_of(const RealModel& model) { return std::filesystem::path(KAON_MODELS) / model.file; }

Tensor random_input(Shape sample, int64_t batch, int64_t tokens) {
  Shape shape = std::move(sample);
  shape.insert(shape.begin(), batch);
  const auto count = static_cast<size_t>(element_count(shape));
  std::mt19937 random(1);
  if (tokens > 0) {
    std::vector<int64_t> ids(count);
    for (int64_t& id : ids) id = static_cast<int64_t>(random() % static_cast<uint64_t>(tokens));
    return Tensor::of<int64_t>(shape, ids);
  }
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return Tensor::of<float>(shape, values);
}

}  // namespace kaon::bench
