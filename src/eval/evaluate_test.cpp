#include "eval/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "eval/metrics.h"

namespace kaon {
namespace {

/// A model that hands its input "x" through, times `factor`.
Model scaled(float factor, std::vector<Dim> shape = {}) {
  Model model;
  model.opsets[""] = 17;
  model.graph.inputs = {{.name = "x", .type = DType::Float32}};
  if (!shape.empty()) model.graph.inputs.front().shape = std::move(shape);
  model.graph.outputs = {{.name = "y", .type = DType::Float32}};
  model.graph.initializers = {{.name = "factor", .tensor = Tensor::scalar(factor)}};
  model.graph.nodes = {{.op = "Mul", .inputs = {"x", "factor"}, .outputs = {"y"}}};
  return model;
}

/// Samples [count, …] in memory.
class ArrayData : public Dataset {
 public:
  ArrayData(Shape shape, std::vector<float> values) : shape_(std::move(shape)), values_(std::move(values)) {}
  ArrayData(Shape shape, std::vector<float> values, Shape label_shape, std::vector<int64_t> labels)
      : shape_(std::move(shape)), values_(std::move(values)), label_shape_(std::move(label_shape)), labels_(labels) {}

  int64_t size() const override { return shape_.front(); }
  bool has_labels() const override { return !label_shape_.empty(); }
  Batch read(int64_t first, int64_t count) const override {
    Batch batch;
    batch.inputs["x"] = part(shape_, values_, first, count);
    if (has_labels()) batch.labels = part(label_shape_, labels_, first, count);
    return batch;
  }

 private:
  template <class T>
  static Tensor part(Shape shape, const std::vector<T>& values, int64_t first, int64_t count) {
    const int64_t each = std::ssize(values) / shape.front();
    shape.front() = count;
    return Tensor::of<T>(
        shape, std::span(values).subspan(static_cast<size_t>(first * each), static_cast<size_t>(count * each)));
  }

  Shape shape_;
  std::vector<float> values_;
  Shape label_shape_;
  std::vector<int64_t> labels_;
};

double metric(const ArrayData& data, const std::string& name, int64_t batch = 8) {
  Engine engine(scaled(1));
  return evaluate(engine, data, {name}, nullptr, {.batch = batch}).metrics.front().second;
}

double against(const ArrayData& data, const std::string& name, float factor) {
  Engine engine(scaled(factor));
  Engine reference(scaled(1));
  return evaluate(engine, data, {name}, &reference, {.batch = 2}).metrics.front().second;
}

template <class Body>
Error error_of(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(ErrorCode::Internal, "");
}

std::vector<float> numbers(int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(std::sin(static_cast<float>(i) * 1.7F) * 3);
  return values;
}

TEST(EvaluateTest, TopKCountsTheLargest) {
  const ArrayData data({3, 7}, {6, 5, 4, 3, 2, 1, 0, 6, 5, 4, 3, 2, 1, 0, 6, 5, 4, 3, 2, 1, 0}, {3}, {0, 4, 5});
  EXPECT_DOUBLE_EQ(metric(data, "top1"), 1.0 / 3);
  EXPECT_DOUBLE_EQ(metric(data, "top5"), 2.0 / 3);
}

TEST(EvaluateTest, OfEqualValuesTheFirstIsLargest) {
  EXPECT_EQ(metric(ArrayData({2, 3}, {1, 1, 1, 1, 1, 1}, {2}, {0, 1}), "top1"), 0.5);
}

TEST(EvaluateTest, LossIsTheMeanCrossEntropy) {
  const ArrayData data({2, 2}, {0, std::log(3.0F), 1000, 0}, {2}, {1, 1});
  EXPECT_NEAR(metric(data, "loss"), (std::log(4.0 / 3) + 1000) / 2, 1e-4);
}

TEST(EvaluateTest, PerplexityIsItsExponential) {
  const ArrayData data({2, 2}, {0, std::log(3.0F), std::log(2.0F), 0}, {2}, {1, 1});
  EXPECT_NEAR(metric(data, "ppl"), std::sqrt(4.0 / 3 * 3), 1e-6);
}

TEST(EvaluateTest, BatchDoesNotMatter) {
  const ArrayData data({5, 4}, numbers(20), {5}, {0, 1, 2, 3, 0});
  for (const int64_t batch : {1, 2, 5, 100}) EXPECT_NEAR(metric(data, "loss", batch), metric(data, "loss"), 1e-12);
}

TEST(EvaluateTest, ClassAxisIsTheLastForSequences) {
  // Two samples of three steps; every label is the largest of its row.
  const ArrayData data({2, 3, 2}, {1, 0, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0}, {2, 3}, {0, 1, 0, 1, 1, 0});
  EXPECT_EQ(metric(data, "top1"), 1);
}

TEST(EvaluateTest, ClassAxisIsOneForImages) {
  // [1, 3 classes, 2, 2]: pixel p has its largest value in class p % 3.
  const ArrayData data({1, 3, 2, 2}, {9, 0, 0, 9, 0, 9, 0, 0, 0, 0, 9, 0}, {1, 2, 2}, {0, 1, 2, 0});
  EXPECT_EQ(metric(data, "top1"), 1);
}

TEST(EvaluateTest, OneLabelForAnImageOfOnePixel) {
  EXPECT_EQ(metric(ArrayData({2, 3, 1, 1}, {0, 0, 1, 1, 0, 0}, {2}, {2, 0}), "top1"), 1);
  EXPECT_EQ(metric(ArrayData({2, 3}, {0, 0, 1, 1, 0, 0}, {2, 1}, {2, 0}), "top1"), 1);
}

TEST(EvaluateTest, IgnoredLabelsDoNotCount) {
  const ArrayData data({3, 2}, {1, 0, 1, 0, 1, 0}, {3}, {-100, 0, 1});
  EXPECT_EQ(metric(data, "top1", 1), 0.5);
  const Error error = error_of([] { metric(ArrayData({1, 2}, {1, 0}, {1}, {-100}), "top1"); });
  EXPECT_EQ(error.code(), ErrorCode::InvalidInput);
}

TEST(EvaluateTest, LabelOutOfRangeNamesTheSample) {
  for (const int64_t bad : {int64_t{2}, int64_t{-1}}) {
    const Error error = error_of([&] { metric(ArrayData({3, 2}, numbers(6), {3}, {0, 1, bad}), "top1", 2); });
    EXPECT_EQ(error.code(), ErrorCode::InvalidInput);
    EXPECT_NE(error.message().find("sample 2 "), std::string::npos) << error.what();
  }
}

TEST(EvaluateTest, LabelsThatDoNotFitTheOutput) {
  const Error error = error_of([] { metric(ArrayData({2, 4}, numbers(8), {2, 3}, {0, 0, 0, 0, 0, 0}), "top1"); });
  EXPECT_NE(error.message().find("[2, 3]"), std::string::npos) << error.what();
}

TEST(EvaluateTest, ErrorsAgainstTheReference) {
  const ArrayData data({4, 3}, numbers(12));
  double energy = 0;
  for (const float x : numbers(12)) energy += static_cast<double>(x) * x;
  EXPECT_NEAR(against(data, "sqnr_db", 1.5F), 10 * std::log10(4.0), 1e-6);
  EXPECT_NEAR(against(data, "mse", 1.5F), energy / 12 / 4, 1e-6);
  EXPECT_NEAR(against(data, "cosine", 1.5F), 1, 1e-12);
  EXPECT_NEAR(against(data, "cosine", -1), -1, 1e-12);
  EXPECT_EQ(against(data, "agreement", 1.5F), 1);
  EXPECT_EQ(against(data, "agreement", -1), 0);
  EXPECT_EQ(against(data, "kl", 1), 0);
}

TEST(EvaluateTest, KlIsThatOfTheReferenceFromTheModel) {
  // softmax(0, ln 3) = (1/4, 3/4); negated: (3/4, 1/4).
  const ArrayData data({1, 2}, {0, std::log(3.0F)});
  EXPECT_NEAR(against(data, "kl", -1), 0.25 * std::log(0.25 / 0.75) + 0.75 * std::log(0.75 / 0.25),
              3e-7);  // exponentials are within 2 ulp
}

TEST(EvaluateTest, MetricsComeInTheOrderAskedFor) {
  Engine engine(scaled(1));
  const EvalResult result = evaluate(engine, ArrayData({2, 2}, numbers(4), {2}, {0, 0}), {"loss", "top1"});
  EXPECT_EQ(result.samples, 2);
  ASSERT_EQ(result.metrics.size(), 2U);
  EXPECT_EQ(result.metrics[0].first, "loss");
  EXPECT_EQ(result.metrics[1].first, "top1");
}

TEST(EvaluateTest, SaysWhatIsMissing) {
  const ArrayData data({2, 2}, numbers(4));
  EXPECT_EQ(error_of([&] { metric(data, "top1"); }).where(), "top1");
  EXPECT_EQ(error_of([&] { metric(data, "kl"); }).where(), "kl");
  EXPECT_NE(error_of([&] { metric(data, "top2"); }).message().find("did you mean 'top"), std::string::npos);
  for (const std::string& name : metric_names()) EXPECT_NE(needs_labels(name), needs_reference(name)) << name;
}

/// Outputs "y" = x, "z" = factor · x and "n", a count.
Model several(float factor) {
  Model model = scaled(factor);
  model.graph.outputs = {{.name = "y", .type = DType::Float32},
                         {.name = "z", .type = DType::Float32},
                         {.name = "n", .type = DType::Int64}};
  model.graph.nodes = {{.op = "Identity", .inputs = {"x"}, .outputs = {"y"}},
                       {.op = "Mul", .inputs = {"x", "factor"}, .outputs = {"z"}},
                       {.op = "Size", .inputs = {"x"}, .outputs = {"n"}}};
  return model;
}

TEST(EvaluateTest, EveryOutputCountsAndTheWorstIsTheHeadline) {
  Engine engine(several(1.5F));
  Engine reference(several(1));
  const ArrayData data({4, 3}, numbers(12), {4}, {0, 1, 2, 0});
  const EvalResult result = evaluate(engine, data, {"top1", "sqnr_db", "mse", "agreement"}, &reference, {.batch = 2});
  ASSERT_EQ(result.outputs.size(), 3U);
  EXPECT_EQ(result.outputs[0].name, "y");
  ASSERT_EQ(result.outputs[0].metrics.size(), 4U);
  EXPECT_EQ(result.outputs[0].metrics[0].first, "top1");
  EXPECT_TRUE(std::isinf(result.outputs[0].metrics[1].second));
  EXPECT_EQ(result.outputs[1].name, "z");
  ASSERT_EQ(result.outputs[1].metrics.size(), 3U) << "labels go with the first output";
  EXPECT_NEAR(result.outputs[1].metrics[0].second, 10 * std::log10(4.0), 1e-6);
  EXPECT_TRUE(std::isnan(result.outputs[2].metrics[2].second)) << "a count has no likeliest class";
  EXPECT_NEAR(result.metrics[1].second, 10 * std::log10(4.0), 1e-6);
  EXPECT_GT(result.metrics[2].second, 0.1);
  EXPECT_EQ(result.metrics[3].second, 1);
  EXPECT_EQ(result.metrics[0].second, result.reference_metrics.at(0).second);
}

TEST(EvaluateTest, OutputsCanBeChosen) {
  Engine engine(several(-1));
  Engine reference(several(1));
  const ArrayData data({4, 3}, numbers(12), {4}, {0, 1, 2, 0});
  const auto with = [&](const std::vector<std::string>& outputs) {
    return evaluate(engine, data, {"top1", "agreement"}, &reference, {.batch = 2, .outputs = outputs});
  };
  EXPECT_EQ(with({"y"}).metrics[1].second, 1);
  const EvalResult chosen = with({"z", "y"});
  EXPECT_EQ(chosen.metrics[1].second, 0);
  EXPECT_EQ(chosen.outputs[0].name, "z");
  EXPECT_EQ(chosen.outputs[0].metrics[0].first, "top1") << "labels go with the first of them";
  EXPECT_EQ(error_of([&] { with({"q"}); }).message(), "the model has no output 'q'; it has y, z, n");
}

TEST(EvaluateTest, NanOutputNamesTheSample) {
  Model model = scaled(1);
  model.graph.nodes = {{.op = "Log", .inputs = {"x"}, .outputs = {"y"}}};
  Engine engine(std::move(model));
  const ArrayData data({3, 2}, {1, 1, 1, 1, 1, -1}, {3}, {0, 0, 0});
  const Error error = error_of([&] { evaluate(engine, data, {"top1"}); });
  EXPECT_EQ(error.code(), ErrorCode::Numeric);
  EXPECT_NE(error.message().find("1 of 6 values of output 'y' are NaN"), std::string::npos) << error.what();
  EXPECT_NE(error.message().find("first in sample 2"), std::string::npos) << error.what();
}

TEST(EvaluateTest, InfiniteLogitsAreNoFault) {
  Model model = scaled(1);
  model.graph.nodes = {{.op = "Log", .inputs = {"x"}, .outputs = {"y"}}};
  Engine engine(std::move(model));
  const EvalResult result = evaluate(engine, ArrayData({1, 2}, {1, 0}, {1}, {0}), {"top1", "loss"});
  EXPECT_EQ(result.metrics[0].second, 1);
  EXPECT_EQ(result.metrics[1].second, 0);
}

TEST(EvaluateTest, FixedBatchIsRespected) {
  const auto dim = [](int64_t size) { return Dim{.value = size}; };
  Engine one(scaled(1, {dim(1), dim(2)}));
  EXPECT_EQ(evaluate(one, ArrayData({3, 2}, numbers(6), {3}, {0, 0, 0}), {"top1"}).samples, 3);
  Engine two(scaled(1, {dim(2), dim(2)}));
  const Error error = error_of([&] { evaluate(two, ArrayData({3, 2}, numbers(6), {3}, {0, 0, 0}), {"top1"}); });
  EXPECT_EQ(error.code(), ErrorCode::InvalidInput);
  EXPECT_NE(error.message().find("2 samples at a time, and 3 samples leave 1 over"), std::string::npos) << error.what();
}

}  // namespace
}  // namespace kaon
