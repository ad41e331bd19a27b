#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "base/registry.h"
#include "graph/graph.h"
#include "nn/train.h"

namespace kaon::nn {

/// Small networks that tell the ten classes of 28×28 grey images apart. Input [batch, 1, 28, 28], pixels from 0 to 1;
/// where a network wants them normalized, it does so itself.

/// 784-512-512-10 with Relu between.
Model mlp(uint64_t seed = 0);
/// Residual blocks at 7×7 and 4×4, as in a ResNet.
Model cnn(uint64_t seed = 0);
/// Depthwise and pointwise convolutions in turn, batch norms and Relu6, as in a MobileNet.
Model mobilenet(uint64_t seed = 0);

/// These, by name, as functions of the seed.
const Registry<std::function<Model(uint64_t seed)>>& models();

/// Ways to train them, by name, as functions of the model's name:
///   default   reaches 88 % (mlp) and 90 % (cnn, mobilenet) on Fashion-MNIST within two minutes on two cores
///   tutorial  that of PyTorch's quickstart: plain SGD at 1e-3 on batches of 64, in the order of the data
const Registry<std::function<TrainOptions(const std::string& model)>>& recipes();

}  // namespace kaon::nn
