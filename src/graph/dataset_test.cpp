#include "graph/dataset.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"

namespace kaon {
namespace {

Graph graph_of(const std::vector<std::vector<Dim>>& shapes) {
  Graph graph;
  for (size_t i = 0; i < shapes.size(); ++i) {
    graph.inputs.push_back({.name = "in" + std::to_string(i), .type = DType::Float32, .shape = shapes[i]});
  }
  return graph;
}

class Samples : public Dataset {
 public:
  explicit Samples(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  bool has_labels() const override { return false; }
  Batch read(int64_t, int64_t) const override { return {}; }

 private:
  int64_t size_;
};

std::string message_of(const std::function<void()>& body, ErrorCode code = ErrorCode::InvalidInput) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(BatchForTest, TheModelDecides) {
  const Dim batch{.symbol = "batch"};
  const Dim unknown;
  EXPECT_EQ(batch_for(graph_of({{batch, {.value = 3}}}), 8), 8);
  EXPECT_EQ(batch_for(graph_of({{unknown, {.value = 3}}}), 8), 8);
  EXPECT_EQ(batch_for(graph_of({{{.value = 1}, {.value = 3}}}), 8), 1);
  EXPECT_EQ(batch_for(graph_of({{batch}, {{.value = 4}}}), 8), 4);
  EXPECT_EQ(batch_for(graph_of({{}}), 8), 8);
  EXPECT_EQ(batch_for(Graph{}, 8), 8);
}

TEST(BatchForTest, ConstantInputsDoNotCount) {
  Graph graph = graph_of({{{.value = 4}}});
  graph.initializers = {{.name = "in0", .tensor = Tensor::of<float>({4}, std::vector<float>(4))}};
  EXPECT_EQ(batch_for(graph, 8), 8);
}

TEST(BatchForTest, SaysWhatIsWrong) {
  EXPECT_NE(message_of([] { batch_for(Graph{}, 0); }).find("batch"), std::string::npos);
  const std::string differ = message_of(
      [] {
        batch_for(graph_of({{{.value = 1}}, {{.value = 2}}}), 8);
      },
      ErrorCode::Unsupported);
  EXPECT_NE(differ.find("in1"), std::string::npos) << differ;
  EXPECT_NE(message_of([] { batch_for(Graph{}, 8, Samples(0)); }).find("empty"), std::string::npos);
  const std::string over = message_of([] { batch_for(graph_of({{{.value = 4}}}), 8, Samples(10)); });
  EXPECT_NE(over.find("4 samples at a time, and 10 samples leave 2 over"), std::string::npos) << over;
  EXPECT_EQ(batch_for(graph_of({{{.value = 5}}}), 8, Samples(10)), 5);
  EXPECT_EQ(batch_for(Graph{}, 8, Samples(10)), 8);
}

template <class T>
Batch batch_with(const Shape& shape, T value, size_t at) {
  std::vector<T> values(static_cast<size_t>(element_count(shape)));
  values[at] = value;
  Batch batch;
  batch.inputs["pixels"] = Tensor::of<T>(shape, values);
  return batch;
}

TEST(CheckFiniteTest, NamesInputSampleAndElement) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::string message = message_of([&] { check_finite(batch_with<float>({2, 3, 4}, nan, 12 + 4 + 3), 10); });
  EXPECT_NE(message.find("pixels"), std::string::npos) << message;
  EXPECT_NE(message.find("sample 11"), std::string::npos) << message;
  EXPECT_NE(message.find("[1, 3]"), std::string::npos) << message;
}

TEST(CheckFiniteTest, FindsItAnywhere) {
  const float infinity = -std::numeric_limits<float>::infinity();
  for (const size_t at : {size_t{0}, size_t{4095}, size_t{4096}, size_t{9999}}) {
    const std::string message = message_of([&] { check_finite(batch_with<float>({10000}, infinity, at), 0); });
    EXPECT_NE(message.find("sample " + std::to_string(at) + " "), std::string::npos) << message;
  }
}

TEST(CheckFiniteTest, EveryFloatType) {
  EXPECT_NE(message_of([] {
              check_finite(batch_with<double>({4}, std::numeric_limits<double>::infinity(), 2), 0);
            }).find("sample 2"),
            std::string::npos);
  for (const auto& [type, bits] : {std::pair{DType::Float16, 0x7c00}, std::pair{DType::BFloat16, 0x7f80}}) {
    std::vector<uint16_t> values = {0, static_cast<uint16_t>(bits)};
    Batch batch;
    batch.inputs["x"] = Tensor::copy_bytes(type, {2}, std::as_bytes(std::span(values)));
    EXPECT_NE(message_of([&] { check_finite(batch, 0); }).find("sample 1"), std::string::npos);
  }
}

TEST(CheckFiniteTest, FiniteDataAndIntegersPass) {
  EXPECT_NO_THROW(check_finite(batch_with<float>({3, 3}, std::numeric_limits<float>::max(), 4), 0));
  EXPECT_NO_THROW(check_finite(batch_with<int64_t>({3}, -1, 1), 0));
  EXPECT_NO_THROW(check_finite(batch_with<float>({1, 1}, 0, 0), 0));
  Batch empty;
  empty.inputs["x"] = Tensor::of<float>({0, 3}, std::vector<float>{});
  EXPECT_NO_THROW(check_finite(empty, 0));
}

}  // namespace
}  // namespace kaon
