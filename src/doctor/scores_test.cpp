#include "doctor/scores.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/engine.h"
#include "eval/evaluate.h"
#include "graph/build_test.h"
#include "quant/networks_test.h"

namespace kaon {
namespace {

/// residual_data() with labels.
class Labelled : public Dataset {
 public:
  explicit Labelled(int64_t samples) : data_(residual_data(samples)) {}
  int64_t size() const override { return data_.size(); }
  bool has_labels() const override { return true; }
  Batch read(int64_t first, int64_t count) const override {
    Batch batch = data_.read(first, count);
    std::vector<int64_t> labels;
    for (int64_t i = first; i < first + count; ++i) labels.push_back(i % 4);
    batch.labels = Tensor::of<int64_t>({count}, labels);
    return batch;
  }

 private:
  MemoryDataset data_;
};

/// The same network with other weights in its last layer.
Model other_network() {
  Model model = residual_network();
  for (Initializer& one : model.graph.initializers) {
    if (one.name == "fc.weight") one = random_constant("fc.weight", {4, 16}, 55);
  }
  return model;
}

TEST(Scores, AgreeWithEvaluate) {
  const Labelled data(24);
  Engine exact(residual_network()), other(other_network());
  for (const std::string& metric : metric_names()) {
    Scorer scorer(metric_facts(metric, data));
    Scores scores;
    for (int64_t first = 0; first < data.size(); first += 8) {
      const Batch batch = data.read(first, 8);
      scorer.add_reference(exact.run(batch.inputs)[0], batch.labels);
      scorer.score(first, other.run(batch.inputs)[0], scores);
    }
    const double expected = evaluate(other, data, {metric}, &exact).metrics[0].second;
    EXPECT_NEAR(scorer.value(scores), expected, 1e-9 * std::fabs(expected) + 1e-12) << metric;
  }
}

TEST(Scores, TheFloatModelHasNoHarm) {
  const Labelled data(16);
  Engine exact(residual_network());
  Scorer scorer(metric_facts("", data));
  EXPECT_EQ(scorer.facts().name, "top1");
  for (int64_t first = 0; first < data.size(); first += 8) {
    const Batch batch = data.read(first, 8);
    scorer.add_reference(exact.run(batch.inputs)[0], batch.labels);
  }
  const Scores scores = scorer.exact();
  EXPECT_EQ(scorer.mean_harm(scores), 0);
  EXPECT_EQ(scorer.sqnr_db(scores), INFINITY);
}

TEST(Scores, WhatIsNotFiniteIsAsWrongAsCanBe) {
  const Labelled data(8);
  Engine exact(residual_network());
  Scorer scorer(metric_facts("top1", data));
  const Batch batch = data.read(0, 8);
  const Tensor output = exact.run(batch.inputs)[0];
  scorer.add_reference(output, batch.labels);
  std::vector<float> values = output.to_float();
  values[1] = NAN;
  Scores scores;
  scorer.score(0, Tensor::of(output.shape(), values), scores);
  EXPECT_EQ(scores.non_finite, 1);
  EXPECT_EQ(scores.metric[0], 0);
  EXPECT_GT(scorer.harm(scores, 0), 10);
  EXPECT_EQ(scorer.harm(scores, 1), 0);
}

TEST(Scores, NoiseIsNoGain) {
  Scorer scorer(metric_facts("sqnr_db", residual_data()));
  scorer.add_reference(Tensor::of<float>({4, 1}, std::vector<float>{1, 1, 1, 1}), {});
  Scores a, b;
  scorer.score(0, Tensor::of<float>({4, 1}, std::vector<float>{2, 1, 2, 1}), a);
  scorer.score(0, Tensor::of<float>({4, 1}, std::vector<float>{1, 2, 1, 1.5F}), b);
  EXPECT_FALSE(scorer.harm_difference(a, b).positive());
  EXPECT_FALSE(scorer.harm_difference(b, a).positive());
  EXPECT_TRUE(scorer.harm_difference(a, scorer.exact()).mean > 0);
}

TEST(Scores, SaysWhichMetricsNeedNoLabels) {
  const std::string message = error_of(ErrorCode::InvalidInput, [] { metric_facts("top1", residual_data()); });
  EXPECT_NE(message.find("sqnr_db"), std::string::npos) << message;
  EXPECT_EQ(metric_facts("", residual_data()).name, "sqnr_db");
}

TEST(Scores, ADropOfSqnrIsNoiseOverSignal) {
  const MetricFacts facts = metric_facts("sqnr_db", residual_data());
  EXPECT_NEAR(facts.worse_by(INFINITY, 0.01), 20, 1e-9);
}

}  // namespace
}  // namespace kaon
