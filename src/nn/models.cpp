#include "nn/models.h"

#include "nn/builder.h"

namespace kaon::nn {

namespace {

constexpr int64_t kClasses = 10;
// Of Fashion-MNIST's training pixels.
constexpr float kPixelMean = 0.2860F;
constexpr float kPixelDeviation = 0.3530F;
// MobileNet's own: channels that hardly vary get no huge factors, which one scale for all weights could not bear.
constexpr float kMobileEpsilon = 1e-3F;

Network grey_images(uint64_t seed) { return Network({1, 28, 28}, seed); }

/// 3×3, or 1×1 without padding; the batch norm behind it has the bias.
ConvOptions before_norm(int64_t kernel, int64_t stride, int64_t groups = 1) {
  return {.kernel = kernel, .stride = stride, .padding = kernel / 2, .groups = groups, .bias = false};
}

void basic_block(Network& net, const std::string& name, int64_t channels, int64_t stride) {
  const auto body = [&](Network& block) {
    block.conv("conv1", channels, before_norm(3, stride)).batch_norm("bn1").relu();
    block.conv("conv2", channels, before_norm(3, 1)).batch_norm("bn2");
  };
  const auto downsample = [&](Network& block) {
    block.conv("downsample.0", channels, before_norm(1, stride)).batch_norm("downsample.1");
  };
  const bool same = stride == 1 && net.shape()[0] == channels;
  net.residual(name, body, same ? Network::Body() : downsample).relu();
}

void separable_block(Network& net, const std::string& name, int64_t channels, int64_t stride) {
  net.block(name, [&](Network& block) {
    const int64_t inputs = block.shape()[0];
    block.conv("depthwise", inputs, before_norm(3, stride, inputs)).batch_norm("depthwise_bn", kMobileEpsilon).relu6();
    block.conv("pointwise", channels, before_norm(1, 1)).batch_norm("pointwise_bn", kMobileEpsilon).relu6();
  });
}

TrainOptions default_recipe(const std::string& model) {
  TrainOptions options;
  options.epochs = model == "mlp" ? 8 : 5;
  options.batch = 128;
  options.optimizer = Optimizer::AdamW;
  options.learning_rate = model == "mlp" ? 1e-3 : 5e-3;
  options.weight_decay = 0.1;
  options.schedule = Schedule::OneCycle;
  return options;
}

TrainOptions tutorial_recipe(const std::string&) {
  TrainOptions options;
  options.epochs = 5;
  options.batch = 64;
  options.optimizer = Optimizer::Sgd;
  options.learning_rate = 1e-3;
  options.shuffle = false;
  return options;
}

}  // namespace

Model mlp(uint64_t seed) {
  Network net = grey_images(seed);
  net.flatten();
  net.linear("fc1", 512).relu();
  net.linear("fc2", 512).relu();
  net.linear("fc3", kClasses);
  return net.model();
}

Model cnn(uint64_t seed) {
  Network net = grey_images(seed);
  net.normalize(kPixelMean, kPixelDeviation);
  net.conv("conv1", 32, before_norm(3, 2)).batch_norm("bn1").relu();
  basic_block(net, "layer1.0", 64, 2);
  basic_block(net, "layer2.0", 96, 2);
  net.global_average_pool().flatten().linear("fc", kClasses);
  return net.model();
}

Model mobilenet(uint64_t seed) {
  Network net = grey_images(seed);
  net.normalize(kPixelMean, kPixelDeviation);
  net.block("features.0",
            [](Network& stem) { stem.conv("conv", 48, before_norm(3, 2)).batch_norm("bn", kMobileEpsilon).relu6(); });
  separable_block(net, "features.1", 96, 2);
  separable_block(net, "features.2", 192, 1);
  separable_block(net, "features.3", 192, 1);
  net.global_average_pool().flatten().linear("classifier", kClasses);
  return net.model();
}

const Registry<std::function<Model(uint64_t)>>& models() {
  static const auto all = [] {
    Registry<std::function<Model(uint64_t)>> models("model");
    models.add("mlp", mlp);
    models.add("cnn", cnn);
    models.add("mobilenet", mobilenet);
    return models;
  }();
  return all;
}

const Registry<std::function<TrainOptions(const std::string&)>>& recipes() {
  static const auto all = [] {
    Registry<std::function<TrainOptions(const std::string&)>> recipes("recipe");
    recipes.add("default", default_recipe);
    recipes.add("tutorial", tutorial_recipe);
    return recipes;
  }();
  return all;
}

}  // namespace kaon::nn
