#include "api/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "graph/build_test.h"
#include "io/files_test.h"
#include "io/npy/npy.h"
#include "io/onnx/onnx.h"

namespace kaon {
namespace {

class CompareModels : public testing::Test {
 protected:
  CompareModels() {
    options_ = {folder_ / "a.onnx", folder_ / "b.onnx", folder_ / "x.npz"};
    write_npz({{"x", Tensor::of<float>({4}, {-1, 2, 3, 4})}}, options_.input);
    write(options_.a, 1, 1, "y");
  }

  /// y = Relu(x · first) · second
  static void write(const std::filesystem::path& path, float first, float second, const std::string& output) {
    write_onnx(make_model({make_node("Mul", {"x", "f"}, {"a"}), make_node("Relu", {"a"}, {"b"}),
                           make_node("Mul", {"b", "s"}, {output})},
                          {make_constant("f", {}, {first}), make_constant("s", {}, {second})}, {make_value("x", {4})},
                          {output}),
               path);
  }

  TemporaryFolder folder_;
  CompareOptions options_;
};

TEST_F(CompareModels, TheSameModel) {
  write(options_.b, 1, 1, "y");
  const CompareResult result = compare_models(options_);
  ASSERT_EQ(result.outputs.size(), 1u);
  EXPECT_EQ(result.outputs[0].sqnr_db, INFINITY);
  EXPECT_EQ(result.outputs[0].cosine, 1);
  EXPECT_EQ(result.values.size(), 3u);
  EXPECT_FALSE(result.first_difference.has_value());
  const auto json = nlohmann::json::parse(to_json(result).dump());
  EXPECT_TRUE(json["outputs"][0]["sqnr_db"].is_null());
  EXPECT_TRUE(json["first_difference"].is_null());
}

TEST_F(CompareModels, FindsTheFirstDifference) {
  write(options_.b, 1, 1.1f, "y");
  const CompareResult late = compare_models(options_);
  EXPECT_EQ(late.first_difference, "y");
  EXPECT_NEAR(late.outputs[0].sqnr_db, 20, 1e-4);
  EXPECT_NEAR(late.outputs[0].max_abs, 0.4, 1e-6);
  write(options_.b, 0.5f, 2, "y");
  const CompareResult early = compare_models(options_);
  EXPECT_EQ(early.first_difference, "a");
  EXPECT_FALSE(early.outputs[0].differs);
  EXPECT_TRUE(early.values[1].differs);
}

TEST_F(CompareModels, FloatNoiseIsNoDifference) {
  write(options_.b, std::nextafter(1.0f, 2.0f), 1, "y");
  const CompareResult result = compare_models(options_);
  EXPECT_LT(result.outputs[0].sqnr_db, INFINITY);
  EXPECT_GT(result.outputs[0].sqnr_db, kNoiseDb);
  EXPECT_FALSE(result.first_difference.has_value());
}

TEST_F(CompareModels, ANanInOneOfThemIsADifference) {
  write(options_.b, 1, NAN, "y");
  const CompareResult result = compare_models(options_);
  EXPECT_EQ(result.first_difference, "y");
  EXPECT_TRUE(nlohmann::json::parse(to_json(result).dump())["outputs"][0]["sqnr_db"].is_null());
  write(options_.a, 1, NAN, "y");
  EXPECT_FALSE(compare_models(options_).first_difference.has_value());
}

TEST_F(CompareModels, PairsOutputsByPlaceWhereNamesDiffer) {
  write(options_.b, 1, 2, "other");
  const CompareResult result = compare_models(options_);
  ASSERT_EQ(result.outputs.size(), 1u);
  EXPECT_EQ(result.outputs[0].name, "y");
  EXPECT_NEAR(result.outputs[0].sqnr_db, 0, 1e-6);
  EXPECT_EQ(result.values.size(), 2u);
  EXPECT_EQ(result.first_difference, "y");
}

TEST_F(CompareModels, WhatHasNoNameGoesByTheLayerBeforeIt) {
  const auto write = [&](const std::filesystem::path& path, float scale) {
    std::vector<Node> nodes = {make_node("MatMul", {"x", "head.weight"}, {"398"}),
                               make_node("Mul", {"398", "s"}, {"399"}), make_node("Relu", {"399"}, {"400"}),
                               make_node("Add", {"400", "x"}, {"401"}), make_node("Relu", {"401"}, {"402"})};
    nodes.back().name = "last";
    write_onnx(make_model(std::move(nodes), {make_counting("head.weight", {4, 4}), make_constant("s", {}, {scale})},
                          {make_value("x", {4})}, {"402"}),
               path);
  };
  write(options_.a, 1);
  write(options_.b, 3);
  const CompareResult result = compare_models(options_);
  std::vector<std::string> names;
  for (const ValueDifference& row : result.values) names.push_back(row.layer + " " + row.op);
  EXPECT_EQ(names, (std::vector<std::string>{"head MatMul", "head Mul", "head Relu", "401 Add", "last Relu"}));
  EXPECT_EQ(result.parting->at.layer, "head");
  EXPECT_EQ(result.parting->at.name, "399");
}

TEST_F(CompareModels, RefusesOtherOutputs) {
  write_onnx(make_model({make_node("ReduceSum", {"x"}, {"y"})}, {}, {make_value("x", {4})}, {"y"}), options_.b);
  EXPECT_EQ(error_of(ErrorCode::InvalidInput, [&] { compare_models(options_); }),
            "y: the output is float32 [4] in A but float32 [1] in B");
  write_onnx(make_model({make_node("Relu", {"x"}, {"y"})}, {}, {make_value("x", {4})}, {"y", "x"}), options_.b);
  EXPECT_EQ(error_of(ErrorCode::InvalidInput, [&] { compare_models(options_); }),
            options_.b.string() + ": has 2 outputs, " + options_.a.string() + " has 1");
}

/// Five products in a row, each with its own factor; a product of 1.01 is 40 dB away from one of 1.
class CompareChains : public CompareModels {
 protected:
  void write_chain(const std::filesystem::path& path, const std::vector<float>& factors) const {
    std::vector<Node> nodes;
    std::vector<Initializer> constants;
    for (size_t i = 0; i < factors.size(); ++i) {
      const std::string at = std::to_string(i);
      nodes.push_back(make_node("MatMul", {i == 0 ? "x" : std::to_string(i - 1), "block." + at + ".weight"}, {at}));
      constants.push_back(make_constant("block." + at + ".weight", {1, 1}, {factors[i]}));
    }
    write_onnx(make_model(nodes, constants, {make_value("x", {4, 1})}, {std::to_string(factors.size() - 1)}), path);
  }
  std::optional<Parting> parting(const std::vector<float>& factors) {
    write_npz({{"x", Tensor::of<float>({4, 1}, {-1, 2, 3, 4})}}, options_.input);
    write_chain(options_.a, {1, 1, 1, 1, 1});
    write_chain(options_.b, factors);
    return compare_models(options_).parting;
  }
};

TEST_F(CompareChains, PartAtTheFirstCliffAndNotAtTheFirstDifference) {
  const std::optional<Parting> found = parting({1.01F, 1, 1.005F, 1.5F, 0.5F});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->at.layer, "block.3");
  EXPECT_EQ(found->at.name, "3");
  EXPECT_EQ(found->at.op, "MatMul");
  EXPECT_NEAR(found->input_sqnr_db, 36.4, 0.1);
  EXPECT_NEAR(found->at.sqnr_db, 5.7, 0.1);
  const auto json = nlohmann::json::parse(to_json(compare_models(options_)).dump());
  EXPECT_EQ(json["first_difference"], "0");
  EXPECT_EQ(json["parting"]["layer"], "block.3");
  EXPECT_EQ(json["values"][1]["layer"], "block.1");
}

TEST_F(CompareChains, AFirstLayerThatLosesAlmostAllIsTheCliff) {
  EXPECT_EQ(parting({1.5F, 1, 1, 1, 1})->at.layer, "block.0");
  EXPECT_EQ(parting({1, 1, NAN, 1, 1})->at.layer, "block.2");
}

TEST_F(CompareChains, SmallStepsAreNoCliff) {
  EXPECT_FALSE(parting({1.005F, 1.005F, 1.005F, 1.005F, 1.005F}).has_value());
  EXPECT_FALSE(parting({1, 1, 1, 1, 1}).has_value());
}

}  // namespace
}  // namespace kaon
