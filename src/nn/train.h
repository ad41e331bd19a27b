#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/enum_names.h"
#include "base/progress.h"
#include "graph/dataset.h"
#include "graph/graph.h"

namespace kaon::nn {

enum class Optimizer { Sgd, AdamW };
/// Constant; down from the full rate along a half cosine; up for the first quarter and then down.
enum class Schedule { Constant, Cosine, OneCycle };

struct TrainOptions {
  int64_t epochs = 5;
  int64_t batch = 128;
  Optimizer optimizer = Optimizer::AdamW;
  double learning_rate = 1e-3;  ///< the highest of the schedule
  double momentum = 0;          ///< of Sgd, Nesterov's where above 0
  double weight_decay = 0;      ///< of weights; biases and batch norms are left alone
  Schedule schedule = Schedule::Constant;
  bool shuffle = true;
  uint64_t seed = 0;  ///< of the shuffling
  Progress* progress = &no_progress();
};

/// Means over the training samples as they were seen.
struct Epoch {
  double loss = 0;
  double accuracy = 0;
};

struct Score {
  double accuracy = 0;
  double loss = 0;
};

struct TrainResult {
  Model model;
  std::vector<Epoch> epochs;
  std::optional<Score> test;  ///< where there was data to test on
  double seconds = 0;         ///< of the training alone
};

/// Trains `model` to name the class of each sample: cross entropy between its first output [batch, classes] and the
/// labels. All float initializers learn, but for the statistics of BatchNormalization, which are averaged over the
/// batches. `training` is read once and kept in memory. On one thread the same call gives the same bytes.
/// Throws InvalidConfig for senseless options, InvalidInput for data that do not fit, Numeric where the loss is no
/// longer finite.
TrainResult train(const Model& model, const Dataset& training, const Dataset* test, const TrainOptions& options);

/// The share of the full learning rate at `step` of `steps`.
double rate_at(Schedule schedule, int64_t step, int64_t steps);

}  // namespace kaon::nn
