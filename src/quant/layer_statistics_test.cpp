#include "quant/layer_statistics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/parallel.h"
#include "engine/engine.h"
#include "quant/networks_test.h"

namespace kaon {
namespace {

using Ints = std::vector<int64_t>;

struct OneLayer {
  std::string name;
  std::string op;
  Shape weight;
  Shape input;  ///< with samples
  std::vector<Attribute> attributes;
};

Model model_of(const OneLayer& layer) {
  Model model = make_model({make_node(layer.op, {"x", "w"}, {"y"}, layer.attributes)},
                           {random_constant("w", layer.weight, 1)}, {make_value("x", layer.input)}, {"y"});
  model.graph.inputs[0].shape->front() = {std::nullopt, "N"};
  return model;
}

MemoryDataset data_of(const OneLayer& layer) { return {layer.input, random_values(element_count(layer.input), 2)}; }

InputStatistics statistics(const Model& model, const Dataset& data, int64_t batch = 3) {
  QuantizeSettings settings;
  settings.batch = batch;
  const std::vector<Layer> all = layers(model.graph);
  const StatisticsRequest request{"it", "x", product_of(model.graph, all.at(0))};
  return *collect_statistics(model, {request}, data, settings).at("it");
}

std::vector<OneLayer> all_layers() {
  return {
      {"padded", "Conv", {4, 3, 3, 3}, {3, 3, 7, 6}, {{"pads", Ints{1, 2, 0, 1}, {}}}},
      {"strided", "Conv", {4, 3, 3, 2}, {3, 3, 9, 8}, {{"strides", Ints{2, 3}, {}}, {"dilations", Ints{2, 1}, {}}}},
      {"wide groups", "Conv", {4, 20, 2, 2}, {3, 40, 5, 5}, {{"group", int64_t{2}, {}}}},
      {"depthwise", "Conv", {6, 1, 3, 3}, {3, 6, 5, 5}, {{"group", int64_t{6}, {}}, {"pads", Ints{1, 1, 1, 1}, {}}}},
      {"same upper", "Conv", {4, 3, 4, 4}, {3, 3, 7, 7}, {{"auto_pad", std::string("SAME_UPPER"), {}}}},
      {"same lower",
       "Conv",
       {4, 3, 4, 4},
       {3, 3, 7, 7},
       {{"auto_pad", std::string("SAME_LOWER"), {}}, {"strides", Ints{2, 2}, {}}}},
      {"one axis", "Conv", {4, 3, 5}, {3, 3, 11}, {{"pads", Ints{2, 1}, {}}}},
      {"gemm", "Gemm", {40, 5}, {3, 40}, {}},
      {"gemm, transposed", "Gemm", {5, 40}, {3, 40}, {{"transB", int64_t{1}, {}}}},
      {"matmul", "MatMul", {6, 5}, {3, 7, 6}, {}},
  };
}

/// With no bias, Σ y² of an output is w·G·wᵀ, and Σ y is w times the sum of the columns.
TEST(LayerStatistics, GiveTheSquaresAndSumsOfTheOutputs) {
  for (const OneLayer& layer : all_layers()) {
    const Model model = model_of(layer);
    const MemoryDataset data = data_of(layer);
    const LayerProduct product = product_of(model.graph, layers(model.graph).at(0));
    ASSERT_EQ(product.refused, "") << layer.name;
    const InputStatistics found = statistics(model, data);
    const Tensor y = Engine(model).run(data.read(0, data.size()).inputs).at(0);
    const std::vector<float> weight = model.graph.find_initializer("w")->tensor.to_float();
    const int64_t inner = product.convolution ? y.size() / y.shape()[0] / y.shape()[1] : 1;
    for (int64_t row = 0; row < product.all_rows(); ++row) {
      double squares = 0;
      double sum = 0;
      const std::span<const float> values = y.as<float>();
      for (int64_t i = 0; i < y.size(); ++i) {
        if (i / inner % product.all_rows() != row) continue;
        const auto value = static_cast<double>(values[static_cast<size_t>(i)]);
        squares += value * value;
        sum += value;
      }
      double form = 0;
      double total = 0;
      const int64_t group = row / product.rows;
      const auto w = [&](int64_t col) {
        return static_cast<double>(weight[static_cast<size_t>(product.offset(row, col))]);
      };
      for (int64_t i = 0; i < product.cols; ++i) {
        total += w(i) * found.mean[static_cast<size_t>(group * product.cols + i)] * static_cast<double>(found.count);
        for (int64_t j = 0; j < product.cols; ++j) form += w(i) * found.gram[static_cast<size_t>(group)](i, j) * w(j);
      }
      EXPECT_NEAR(form, squares, 1e-5 * squares) << layer.name << " row " << row;
      EXPECT_NEAR(total, sum, 1e-5 * std::sqrt(squares * static_cast<double>(y.size()))) << layer.name;
    }
  }
}

TEST(LayerStatistics, RunNoFurtherThanWhatIsWatched) {
  for (const OneLayer& layer : all_layers()) {
    Model model = model_of(layer);
    std::vector<Node>& nodes = model.graph.nodes;
    nodes[0].inputs[0] = "h";
    nodes.insert(nodes.begin(), make_node("Relu", {"x"}, {"h"}));
    nodes.push_back(make_node("NoSuchOperator", {"y"}, {"z"}));
    model.graph.outputs = {make_value("z", {})};
    std::vector<float> values = random_values(element_count(layer.input), 2);
    const StatisticsRequest request{"it", "h", product_of(model.graph, layers(model.graph).at(0))};
    QuantizeSettings settings;
    settings.batch = 2;
    const auto found = collect_statistics(model, {request}, MemoryDataset(layer.input, values), settings).at("it");
    for (float& value : values) value = std::max(value, 0.0F);
    const InputStatistics expected = statistics(model_of(layer), MemoryDataset(layer.input, values));
    EXPECT_EQ(found->count, expected.count) << layer.name;
    EXPECT_EQ(found->mean, expected.mean) << layer.name;
    for (size_t g = 0; g < expected.gram.size(); ++g) EXPECT_EQ(found->gram[g].data, expected.gram[g].data);
  }
}

TEST(LayerStatistics, DoNotDependOnThreadsNorBatches) {
  for (const OneLayer& layer : all_layers()) {
    const Model model = model_of(layer);
    const MemoryDataset data = data_of(layer);
    const int threads = thread_count();
    set_thread_count(1);
    const InputStatistics one = statistics(model, data, 1);
    set_thread_count(2);
    const InputStatistics two = statistics(model, data, 2);
    set_thread_count(threads);
    EXPECT_EQ(one.count, two.count);
    EXPECT_EQ(one.mean, two.mean) << layer.name;
    for (size_t g = 0; g < one.gram.size(); ++g) EXPECT_EQ(one.gram[g].data, two.gram[g].data) << layer.name;
  }
}

/// Inside a network values lie as the plan likes best; what is seen of them is the same.
TEST(LayerStatistics, SeeThroughLayoutsInsideANetwork) {
  const Attribute pads{"pads", Ints{1, 1, 1, 1}, {}};
  Model model = make_model(
      {make_node("Conv", {"x", "u"}, {"a"}, {pads}), make_node("Relu", {"a"}, {"b"}),
       make_node("Conv", {"b", "v"}, {"c"}, {pads, {"group", int64_t{21}, {}}}),
       make_node("Conv", {"c", "w"}, {"d"}, {pads, {"group", int64_t{3}, {}}}), make_node("Conv", {"d", "t"}, {"y"})},
      {random_constant("u", {21, 3, 3, 3}, 1), random_constant("v", {21, 1, 3, 3}, 2),
       random_constant("w", {48, 7, 3, 3}, 3), random_constant("t", {5, 48, 1, 1}, 4)},
      {make_value("x", {5, 3, 24, 20})}, {"b", "c", "d", "y"});
  model.graph.inputs[0].shape->front() = {std::nullopt, "N"};
  const MemoryDataset data({5, 3, 24, 20}, random_values(5 * 3 * 24 * 20, 5));
  std::vector<StatisticsRequest> requests;
  for (const Layer& layer : layers(model.graph)) {
    requests.push_back({layer.name, layer.input, product_of(model.graph, layer)});
  }
  ASSERT_EQ(requests.size(), 4U);
  const auto found = collect_statistics(model, requests, data, {.batch = 2});
  TensorMap values = data.read(0, 5).inputs;
  const std::vector<Tensor> outputs = Engine(model).run(values);
  for (size_t i = 0; i < 3; ++i) values[model.graph.outputs[i].name] = outputs[i];
  for (const StatisticsRequest& request : requests) {
    InputSums sums(request.product);
    sums.add(values.at(request.value), 0);
    const InputStatistics wanted = sums.finish();
    const InputStatistics& seen = *found.at(request.name);
    EXPECT_EQ(seen.count, wanted.count);
    const auto near = [&](std::span<const double> a, std::span<const double> b) {
      for (size_t k = 0; k < b.size(); ++k) ASSERT_NEAR(a[k], b[k], 1e-5 * std::sqrt(b[0] * b[0] + 1)) << request.name;
    };
    near(seen.mean, wanted.mean);
    for (size_t g = 0; g < wanted.gram.size(); ++g) near(seen.gram[g].data, wanted.gram[g].data);
  }
}

TEST(LayerStatistics, LookAtFewerPositionsWhereFewNumbersAreMultiplied) {
  const OneLayer layer{"depthwise", "Conv", {2, 1, 3, 3}, {3, 2, 40, 40}, {{"group", int64_t{2}, {}}}};
  EXPECT_EQ(statistics(model_of(layer), data_of(layer), 2).count, 3 * 36);
}

TEST(LayerStatistics, LookAtSomePositionsOfLargeImages) {
  const OneLayer layer{"large", "Conv", {2, 64, 1, 1}, {2, 64, 40, 40}, {}};
  const InputStatistics found = statistics(model_of(layer), data_of(layer), 2);
  EXPECT_EQ(found.count, 2 * 256);
  const double variance = found.gram[0](0, 0) / static_cast<double>(found.count);
  EXPECT_NEAR(variance, 1, 0.25);
}

TEST(LayerStatistics, LayersThatReadTheSameShareThem) {
  const Model model = make_model({make_node("MatMul", {"x", "v"}, {"a"}), make_node("Relu", {"x"}, {"r"}),
                                  make_node("Gemm", {"x", "w"}, {"b"}), make_node("MatMul", {"r", "v"}, {"c"})},
                                 {random_constant("v", {4, 3}, 1), random_constant("w", {4, 5}, 2)},
                                 {make_value("x", {6, 4})}, {"a", "b", "c"});
  std::vector<StatisticsRequest> requests;
  for (const Layer& layer : layers(model.graph)) {
    requests.push_back({layer.name, layer.input, product_of(model.graph, layer)});
  }
  ASSERT_EQ(requests.size(), 3U);
  const auto found = collect_statistics(model, requests, MemoryDataset({6, 4}, random_values(24, 3)), {});
  EXPECT_EQ(found.at(requests[0].name), found.at(requests[1].name));
  EXPECT_NE(found.at(requests[0].name), found.at(requests[2].name));
}

TEST(LayerStatistics, PairsOfNetworks) {
  const OneLayer layer{"gemm", "Gemm", {40, 5}, {30, 40}, {}};
  const LayerProduct product = product_of(model_of(layer).graph, layers(model_of(layer).graph).at(0));
  const Tensor x = Tensor::of({30, 40}, random_values(1200, 3));
  std::vector<float> doubled = x.to_float();
  for (float& value : doubled) value *= 2;
  InputSums sums(product, true);
  const Tensor y = Tensor::of({30, 40}, doubled);
  sums.add(x, 0, &y);
  const InputStatistics found = sums.finish();
  for (size_t i = 0; i < found.gram[0].data.size(); ++i) {
    EXPECT_NEAR(found.cross[0].data[i], 2 * found.gram[0].data[i], 1e-4) << i;
  }
}

TEST(LayerStatistics, SaysWhatItRefuses) {
  const auto refused = [](const OneLayer& layer) {
    const Model model = model_of(layer);
    return product_of(model.graph, layers(model.graph).at(0)).refused;
  };
  EXPECT_NE(refused({"", "ConvTranspose", {3, 4, 3, 3}, {1, 3, 5, 5}, {}}).find("transposed"), std::string::npos);
  EXPECT_NE(refused({"", "Conv", {2, 2, 1, 1, 1}, {1, 2, 2, 2, 2}, {}}).find("three axes"), std::string::npos);
  EXPECT_NE(refused({"", "Gemm", {5000, 2}, {1, 5000}, {}}).find("5000"), std::string::npos);
  EXPECT_NE(refused({"", "MatMul", {2, 3, 4}, {2, 5, 3}, {}}).find("axes"), std::string::npos);
}

}  // namespace
}  // namespace kaon
