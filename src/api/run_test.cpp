#include "api/run.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "graph/build_test.h"
#include "io/files_test.h"
#include "io/npy/npy.h"
#include "io/onnx/onnx.h"

namespace kaon {
namespace {

class RunModel : public testing::Test {
 protected:
  /// y = Relu(x · w), z = y as bfloat16.
  RunModel() {
    options_.model = folder_ / "m.onnx";
    options_.input = folder_ / "x.npz";
    options_.output = folder_ / "y.npz";
    const int64_t bfloat16 = static_cast<int64_t>(DType::BFloat16);
    Model model = make_model({make_node("MatMul", {"x", "w"}, {"a"}), make_node("Relu", {"a"}, {"y"}),
                              make_node("Cast", {"y"}, {"z"}, {{"to", bfloat16, {}}})},
                             {make_constant("w", {2, 1}, {1, -2})}, {make_value("x", {3, 2})}, {"y", "z"});
    model.graph.outputs[1] = make_value("z", {3, 1}, DType::BFloat16);
    write_onnx(model, options_.model);
    write_npz({{"x", x_}}, options_.input);
  }

  TemporaryFolder folder_;
  RunOptions options_;
  Tensor x_ = Tensor::of<float>({3, 2}, {1, 0, 0, 1, 5, 1});
};

TEST_F(RunModel, WritesOutputsAndDumpedValues) {
  options_.dump = "?";
  options_.repeat = 2;
  const RunResult result = run_model(options_);
  ASSERT_EQ(result.outputs.size(), 2u);
  EXPECT_EQ(result.outputs[0].name, "y");
  EXPECT_EQ(result.outputs[0].type, "float32");
  EXPECT_EQ(result.outputs[0].shape, Shape({3, 1}));
  EXPECT_EQ(result.outputs[1].type, "bfloat16");
  EXPECT_EQ(result.dumped, std::vector<std::string>({"x", "a", "y", "z"}));
  EXPECT_FALSE(result.passed.has_value());
  EXPECT_GT(result.seconds, 0);
  EXPECT_GE(result.peak_mb, result.startup_mb);
  const NamedTensors arrays = read_npz(options_.output);
  ASSERT_EQ(arrays.size(), 4u);
  const std::vector<std::pair<std::string, std::vector<float>>> expected{
      {"y", {1, 0, 3}}, {"z", {1, 0, 3}}, {"x", {1, 0, 0, 1, 5, 1}}, {"a", {1, -2, 3}}};
  for (size_t i = 0; i < arrays.size(); ++i) {
    EXPECT_EQ(arrays[i].first, expected[i].first);
    EXPECT_EQ(arrays[i].second.type(), DType::Float32);
    EXPECT_EQ(arrays[i].second.to_float(), expected[i].second) << arrays[i].first;
  }
}

TEST_F(RunModel, SaysWhichArraysItDidNotUse) {
  write_npz({{"labels", x_}, {"x", x_}}, options_.input);
  EXPECT_EQ(run_model(options_).unused, std::vector<std::string>({"labels"}));
}

TEST_F(RunModel, ComparesWithTestData) {
  const auto data = folder_ / "test_data_set_0";
  std::filesystem::create_directory(data);
  write_tensor_proto(x_, data / "input_0.pb");
  const auto expect = [&](std::vector<float> y) {
    write_tensor_proto(Tensor::of<float>({3, 1}, y), data / "output_0.pb");
    // 1, 0 and 3 in bfloat16, as the bare uint16 that some test data hold.
    write_tensor_proto(Tensor::of<uint16_t>({3, 1}, {0x3f80, 0, 0x4040}), data / "output_1.pb");
    options_.input = data;
    return run_model(options_);
  };
  const RunResult same = expect({1, 0, 3});
  EXPECT_TRUE(same.passed.value());
  EXPECT_EQ(same.outputs[0].error->max_abs, 0);
  const RunResult near = expect({1, 0, 3.002f});
  EXPECT_TRUE(near.passed.value());
  EXPECT_NEAR(near.outputs[0].error->max_abs, 0.002, 1e-6);
  EXPECT_NEAR(near.outputs[0].error->max_rel, 0.002 / 3.002, 1e-6);
  const RunResult off = expect({1, 0, 3.01f});
  EXPECT_FALSE(off.passed.value());
  EXPECT_TRUE(off.outputs[1].error->passed);
  EXPECT_FALSE(expect({1, 0, NAN}).passed.value());
  EXPECT_TRUE(nlohmann::json::parse(to_json(expect({1, 0, NAN})).dump())["outputs"][0]["max_abs"].is_null());
  EXPECT_EQ(to_json(same)["passed"], true);
}

TEST_F(RunModel, NamesWhatIsMissing) {
  write_npz({{"input", x_}}, options_.input);
  EXPECT_EQ(error_of(ErrorCode::InvalidInput, [&] { run_model(options_); }),
            options_.input.string() + ": holds 'input', but the model needs 'x': float32 [3, 2]");
  options_.input.clear();
  EXPECT_EQ(error_of(ErrorCode::InvalidInput, [&] { run_model(options_); }).find("--input: the model needs 'x'"), 0u);
}

TEST_F(RunModel, ADumpNeedsAFileAndAMatch) {
  options_.dump = "conv*";
  EXPECT_EQ(error_of(ErrorCode::InvalidInput, [&] { run_model(options_); }),
            "--dump: no value of the model matches 'conv*'");
  options_.dump = "*";
  options_.output.clear();
  error_of(ErrorCode::InvalidInput, [&] { run_model(options_); });
}

}  // namespace
}  // namespace kaon
