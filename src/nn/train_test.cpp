#include "nn/train.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/parallel.h"
#include "engine/engine.h"
#include "graph/build_test.h"
#include "nn/builder.h"
#include "nn/synthetic_test.h"

namespace kaon::nn {
namespace {

constexpr int64_t kSide = 8;
constexpr int64_t kClasses = 4;

Model small_net(bool with_norm, uint64_t seed = 0) {
  Network net({1, kSide, kSide}, seed);
  if (with_norm) net.conv("conv", 8, {.stride = 2, .padding = 1, .bias = false}).batch_norm("bn").relu6();
  return net.flatten().linear("fc1", 16).relu().linear("fc2", kClasses).model();
}

TrainOptions quick() {
  TrainOptions options;
  options.epochs = 4;
  options.batch = 16;
  options.learning_rate = 1e-2;
  return options;
}

/// Counts what it is told.
class Told : public Progress {
 public:
  void begin(const std::string& task, int64_t total) override {
    tasks.push_back(task);
    totals.push_back(total);
  }
  void at(int64_t done, const std::string& note) override {
    last = done;
    notes.push_back(note);
  }
  std::vector<std::string> tasks, notes;
  std::vector<int64_t> totals;
  int64_t last = 0;
};

class OneThread : public ::testing::Test {
 protected:
  OneThread() : before_(thread_count()) { set_thread_count(1); }
  ~OneThread() override { set_thread_count(before_); }

 private:
  int before_;
};

bool same_parameters(const Model& a, const Model& b) {
  for (const Initializer& initializer : a.graph.initializers) {
    const Tensor& other = b.graph.find_initializer(initializer.name)->tensor;
    if (!std::ranges::equal(initializer.tensor.bytes(), other.bytes())) return false;
  }
  return true;
}

TEST(Train, LearnsToTellRowsApart) {
  const BrightRows training(600, kSide, kClasses, 1), test(200, kSide, kClasses, 2);
  for (const bool with_norm : {false, true}) {
    for (const Optimizer optimizer : {Optimizer::AdamW, Optimizer::Sgd}) {
      TrainOptions options = quick();
      options.optimizer = optimizer;
      options.schedule = Schedule::OneCycle;
      if (optimizer == Optimizer::Sgd) {
        options.learning_rate = 0.1;
        options.momentum = 0.9;
      }
      const TrainResult result = train(small_net(with_norm), training, &test, options);
      ASSERT_EQ(result.epochs.size(), 4U);
      EXPECT_LT(result.epochs.back().loss, result.epochs.front().loss / 2);
      EXPECT_GT(result.test->accuracy, 0.97) << "norm " << with_norm << ", optimizer " << int(optimizer);
      EXPECT_LT(result.test->loss, 0.2);
    }
  }
}

TEST(Train, OneStepOfSgdIsTheGradientTimesTheRate) {
  // A linear model on one sample: d loss / d logit = softmax − one-hot, d loss / d bias the same.
  Network net({1, 2, 2});
  Model model = net.flatten().linear("fc", 2).model();
  const std::vector<float> zeros(8, 0);
  model.graph.find_initializer("fc.weight")->tensor = Tensor::of<float>({2, 4}, zeros);
  model.graph.find_initializer("fc.bias")->tensor = Tensor::of<float>({2}, std::vector<float>{0, std::log(3.0F)});
  const BrightRows one(1, 2, 2);
  const auto pixels = one.read(0, 1).inputs.at("input").to_float();
  TrainOptions options;
  options.epochs = 1;
  options.batch = 1;
  options.optimizer = Optimizer::Sgd;
  options.learning_rate = 0.5;
  const Model trained = train(model, one, nullptr, options).model;
  const auto bias = trained.graph.find_initializer("fc.bias")->tensor.to_float();
  EXPECT_NEAR(bias[0], 0.5 * 0.75, 1e-6);  // class 0 was right, and had a quarter of the probability
  EXPECT_NEAR(bias[1], std::log(3.0) - 0.5 * 0.75, 1e-6);
  const auto weight = trained.graph.find_initializer("fc.weight")->tensor.to_float();
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(weight[i], 0.5 * 0.75 * pixels[i], 1e-6);
    EXPECT_NEAR(weight[4 + i], -0.5 * 0.75 * pixels[i], 1e-6);
  }
}

TEST(Train, BatchNormsLearnTheStatisticsOfTheirInput) {
  Network net({1, kSide, kSide});
  const Model model = net.batch_norm("bn").flatten().linear("fc", kClasses).model();
  const BrightRows data(512, kSide, kClasses);
  TrainOptions options = quick();
  options.batch = 512;
  options.epochs = 60;
  options.learning_rate = 1e-6;
  const Model trained = train(model, data, nullptr, options).model;
  double sum = 0, squares = 0;
  const auto pixels = data.read(0, 512).inputs.at("input").to_float();
  for (const float pixel : pixels) {
    sum += pixel;
    squares += static_cast<double>(pixel) * pixel;
  }
  const double mean = sum / static_cast<double>(pixels.size());
  const double variance = squares / static_cast<double>(pixels.size()) - mean * mean;
  // 0.9^60 = 0.002 of the start is left: 0 and 1.
  const double left = std::pow(0.9, 60);
  EXPECT_NEAR(trained.graph.find_initializer("bn.running_mean")->tensor.to_float()[0], mean * (1 - left), 1e-4);
  EXPECT_NEAR(trained.graph.find_initializer("bn.running_var")->tensor.to_float()[0], variance * (1 - left) + left,
              1e-4);
  // And the model that comes out is one for inference.
  ASSERT_EQ(trained.graph.nodes[0].op, "BatchNormalization");
  EXPECT_EQ(trained.graph.nodes[0].get_int("training_mode", 0), 0);
  EXPECT_EQ(trained.graph.nodes[0].outputs.size(), 1U);
  EXPECT_EQ(trained.graph.outputs.size(), 1U);
}

TEST_F(OneThread, TheSameCallGivesTheSameBytes) {
  const BrightRows data(300, kSide, kClasses);
  TrainOptions options = quick();
  options.epochs = 2;
  const Model first = train(small_net(true), data, nullptr, options).model;
  EXPECT_TRUE(same_parameters(first, train(small_net(true), data, nullptr, options).model));
  options.seed = 1;
  EXPECT_FALSE(same_parameters(first, train(small_net(true), data, nullptr, options).model));
  options.seed = 0;
  options.shuffle = false;
  EXPECT_FALSE(same_parameters(first, train(small_net(true), data, nullptr, options).model));
}

TEST_F(OneThread, WeightDecayLeavesBiasesAndNormsAlone) {
  const BrightRows data(16, kSide, kClasses);
  TrainOptions options = quick();
  options.epochs = 1;
  const Model without = train(small_net(true), data, nullptr, options).model;
  options.weight_decay = 1;
  const Model with = train(small_net(true), data, nullptr, options).model;
  for (const Initializer& initializer : without.graph.initializers) {
    const Tensor& other = with.graph.find_initializer(initializer.name)->tensor;
    EXPECT_EQ(std::ranges::equal(initializer.tensor.bytes(), other.bytes()), initializer.tensor.rank() == 1)
        << initializer.name;
  }
}

TEST(Train, SaysHowFarItIs) {
  const BrightRows data(40, kSide, kClasses), test(8, kSide, kClasses);
  Told told;
  TrainOptions options = quick();
  options.epochs = 2;
  options.progress = &told;
  train(small_net(false), data, nullptr, options);
  EXPECT_EQ(told.tasks, (std::vector<std::string>{"train"}));
  EXPECT_EQ(told.totals, (std::vector<int64_t>{80}));
  EXPECT_EQ(told.last, 80);
  ASSERT_EQ(told.notes.size(), 6U);
  EXPECT_TRUE(told.notes[5].starts_with("epoch 2/2, loss ")) << told.notes[5];
}

TEST(Train, SchedulesGoWhereTheySay) {
  EXPECT_EQ(rate_at(Schedule::Constant, 99, 100), 1);
  EXPECT_EQ(rate_at(Schedule::Cosine, 0, 100), 1);
  EXPECT_NEAR(rate_at(Schedule::Cosine, 50, 100), 0.5, 1e-12);
  EXPECT_NEAR(rate_at(Schedule::Cosine, 100, 100), 0, 1e-12);
  EXPECT_NEAR(rate_at(Schedule::OneCycle, 0, 100), 0.04, 1e-12);
  EXPECT_NEAR(rate_at(Schedule::OneCycle, 25, 100), 1, 1e-12);
  EXPECT_LT(rate_at(Schedule::OneCycle, 99, 100), 0.001);
}

TEST(Train, WhatCannotBeTrainedIsRefused) {
  const BrightRows data(8, kSide, kClasses);
  const auto refused = [&](ErrorCode code, const Dataset& samples, const std::function<void(TrainOptions&)>& change,
                           const std::string& part) {
    TrainOptions options = quick();
    change(options);
    const std::string message = error_of(code, [&] { train(small_net(false), samples, nullptr, options); });
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  const auto nothing = [](TrainOptions&) {};
  refused(
      ErrorCode::InvalidConfig, data, [](TrainOptions& o) { o.epochs = 0; }, "epochs: 0; 1 or more is accepted");
  refused(
      ErrorCode::InvalidConfig, data, [](TrainOptions& o) { o.batch = 0; }, "batch");
  refused(
      ErrorCode::InvalidConfig, data, [](TrainOptions& o) { o.learning_rate = NAN; }, "learning_rate");
  refused(
      ErrorCode::InvalidConfig, data, [](TrainOptions& o) { o.momentum = 1; }, "momentum");
  refused(
      ErrorCode::InvalidConfig, data, [](TrainOptions& o) { o.weight_decay = -1; }, "weight_decay");
  refused(ErrorCode::InvalidInput, BrightRows(0, kSide, kClasses), nothing, "no samples");
  refused(ErrorCode::InvalidInput, BrightRows(8, kSide, kClasses + 1), nothing, "classes from 0 to 4, but the model");
  refused(ErrorCode::InvalidInput, BrightRows(8, kSide, kClasses, 1, -1), nothing, "classes from -1");
  refused(ErrorCode::InvalidInput, BrightRows(8, kSide - 1, kClasses), nothing, "Gemm");
  refused(
      ErrorCode::Numeric, data,
      [](TrainOptions& o) {
        o.optimizer = Optimizer::Sgd;
        o.learning_rate = 1e30;
        o.epochs = 20;
      },
      "a lower learning rate than 1e+30 may help");
}

}  // namespace
}  // namespace kaon::nn
