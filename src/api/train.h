#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/progress.h"
#include "nn/train.h"

namespace kaon {

/// Which network of nn/models.h is trained on Fashion-MNIST, and how.
struct TrainingOptions {
  std::string model = "mlp";
  std::string recipe = "default";
  int64_t epochs = 0;          ///< 0 = as the recipe says
  int64_t limit = 0;           ///< training images; 0 = all
  std::filesystem::path data;  ///< the folder of the dataset; see FashionMnist
  uint64_t seed = 0;
};

struct TrainCall : TrainingOptions {
  std::filesystem::path output;  ///< the .onnx file; its parameters go to .safetensors beside it
  Progress* progress = &no_progress();
};

struct TrainReport {
  std::string model;
  std::string recipe;
  std::vector<nn::Epoch> epochs;
  nn::Score test;
  double seconds = 0;  ///< of the training alone
  std::filesystem::path file;
  std::filesystem::path parameters;
};

/// Trains, tests on the 10,000 test images and writes both files.
TrainReport train_model(const TrainCall& call);

nlohmann::ordered_json to_json(const TrainReport& report);

}  // namespace kaon
