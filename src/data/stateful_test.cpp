#include <gtest/gtest.h>

#include "data/expect_test.h"
#include "io/files_test.h"
#include "io/npy/npy.h"

namespace kaon {
namespace {

class Stateful : public testing::Test {
 protected:
  void SetUp() override {
    write_npz({{"audio", Tensor::of<float>({4, 2}, std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7})},
               {"labels", Tensor::of<int64_t>({4}, std::vector<int64_t>{0, 1, 0, 1})}},
              folder_ / "a.npz");
  }
  std::unique_ptr<Dataset> open(const std::string& json, const DatasetOptions& options = {}) {
    write_file(folder_ / "d.json", json);
    return open_dataset(folder_ / "d.json", inputs_, options);
  }
  void refused(ErrorCode code, const std::string& message, const std::string& json) {
    expect_error(code, message, [&] { open(json); });
  }

  TemporaryFolder folder_;
  const std::vector<ValueInfo> inputs_{input_of("audio", DType::Float32, {-1, 2}),
                                       input_of("state", DType::Float32, {2, -1, 3}),
                                       {.name = "sr", .type = DType::Int64, .shape = std::vector<Dim>{}}};
};

constexpr const char* kWhole = R"({"samples": "a.npz", "fixed": {"sr": 16000}, "carry": {"stateN": "state"}})";

TEST_F(Stateful, ScalarsAndStatesStandBesideTheSamples) {
  const auto data = open(kWhole);
  EXPECT_EQ(data->size(), 4);
  EXPECT_TRUE(data->has_labels());
  const Batch batch = data->read(1, 1);
  EXPECT_EQ(values_of<float>(batch.inputs.at("audio")), (std::vector<float>{2, 3}));
  EXPECT_EQ(values_of<int64_t>(batch.labels), std::vector<int64_t>{1});
  EXPECT_EQ(batch.inputs.at("sr").shape(), Shape{});
  EXPECT_EQ(values_of<int64_t>(batch.inputs.at("sr")), std::vector<int64_t>{16000});
  EXPECT_EQ(batch.inputs.at("state").shape(), (Shape{2, 1, 3}));
  EXPECT_EQ(values_of<float>(batch.inputs.at("state")), std::vector<float>(6, 0));
  EXPECT_EQ(data->side_inputs().names, (std::set<std::string>{"sr", "state"}));
}

TEST_F(Stateful, SamplesComeOneByOneWhereAStateIsCarried) {
  Graph graph;
  graph.inputs = inputs_;
  EXPECT_EQ(batch_for(graph, 8, *open(kWhole)), 1);
  EXPECT_EQ(batch_for(graph, 8, *open(R"({"samples": "a.npz", "fixed": {"sr": 8000, "state": 0}})")), 8);
}

TEST_F(Stateful, WhatARunLeavesTheNextEnters) {
  const auto data = open(R"({"samples": "a.npz", "fixed": {"sr": 1, "state": 5}, "carry": {"stateN": "state"},
                             "restart": 3})");
  Graph graph;
  graph.inputs = inputs_;
  graph.outputs = {{.name = "y"}, {.name = "stateN"}};
  CarriedState state(*data, graph);
  std::vector<float> entered;
  for (int64_t i = 0; i < 4; ++i) {
    const TensorMap inputs = state.enter(data->read(i, 1));
    const float now = inputs.at("state").as<float>()[0];
    entered.push_back(now);
    state.leave({Tensor::scalar<float>(0), Tensor::of<float>({2, 1, 3}, std::vector<float>(6, now + 1))});
  }
  EXPECT_EQ(entered, (std::vector<float>{5, 6, 7, 5}));
  graph.outputs.pop_back();
  expect_error(ErrorCode::InvalidInput, "the model has no output 'stateN'", [&] { CarriedState(*data, graph); });
}

TEST_F(Stateful, FixedInputsAreNumbersListsOrFiles) {
  write_npy(Tensor::of<float>({2, 1, 3}, std::vector<float>{1, 2, 3, 4, 5, 6}), folder_ / "s.npy");
  const auto of = [&](const std::string& state) {
    const auto data = open(R"({"samples": "a.npz", "fixed": {"sr": 1, "state": )" + state + "}}");
    return values_of<float>(data->read(0, 1).inputs.at("state"));
  };
  const std::vector<float> counted{1, 2, 3, 4, 5, 6};
  EXPECT_EQ(of("0.5"), std::vector<float>(6, 0.5F));
  EXPECT_EQ(of("[[[1, 2, 3]], [[4, 5, 6]]]"), counted);
  EXPECT_EQ(of("\"s.npy\""), counted);
}

TEST_F(Stateful, FirstAndLimitChooseSamples) {
  const std::string json = R"({"samples": "a.npz", "fixed": {"sr": 1, "state": 0}, "first": 1, "limit": 2})";
  const auto data = open(json);
  EXPECT_EQ(data->size(), 2);
  EXPECT_EQ(values_of<float>(data->read(0, 1).inputs.at("audio")), (std::vector<float>{2, 3}));
  EXPECT_EQ(open(json, {.limit = 1})->size(), 1);
}

TEST_F(Stateful, WhatIsWrongIsNamed) {
  const auto config = [&](const std::string& message, const std::string& json) {
    refused(ErrorCode::InvalidConfig, message, json);
  };
  const auto input = [&](const std::string& message, const std::string& json) {
    refused(ErrorCode::InvalidInput, message, json);
  };
  config("'fixd'", R"({"samples": "a.npz", "fixd": {}})");
  config("\"fixed\" must be an object", R"({"samples": "a.npz", "fixed": 3})");
  config("must be a number, lists of numbers", R"({"samples": "a.npz", "fixed": {"sr": 1, "state": [[1], [2, 3]]}})");
  config("must be a number, lists of numbers", R"({"samples": "a.npz", "fixed": {"sr": null}})");
  config("two outputs", R"({"samples": "a.npz", "fixed": {"sr": 1}, "carry": {"a": "state", "b": "state"}})");
  config("must be the name of an input", R"({"samples": "a.npz", "carry": {"a": 1}})");
  input("the model has no input 'rate'", R"({"samples": "a.npz", "fixed": {"rate": 1}})");
  input("has the shape [2]", R"({"samples": "a.npz", "fixed": {"sr": 1, "state": [1, 2]}})");
  input("but the model needs", R"({"samples": "a.npz", "fixed": {"sr": 1}})");
  input("\"samples\" names a file", R"({"samples": "a.bin", "fixed": {"sr": 1, "state": 0}})");
}

}  // namespace
}  // namespace kaon
