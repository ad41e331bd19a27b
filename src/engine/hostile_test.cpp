// Models made to break the engine: each must end in an error of one line that says what is wrong, at once.
#include <gtest/gtest.h>

#include <limits>

#include "base/memory_budget.h"
#include "engine/engine.h"
#include "engine/ops/single_op_test.h"
#include "graph/build_test.h"

namespace kaon {
namespace {

constexpr int64_t kHuge = int64_t{1} << 30;
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

/// What is thrown by a run of `node` on `inputs`, planned and constant alike.
std::string refused(SingleOp op, const std::vector<Tensor>& inputs, size_t outputs = 1) {
  std::string message = error_of(ErrorCode::InvalidInput, [&] { op.run(inputs, outputs); });
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  return message;
}

void expect_says(const std::string& message, const std::string& words) {
  EXPECT_NE(message.find(words), std::string::npos) << message;
}

class Hostile : public testing::Test {
 protected:
  void SetUp() override { set_memory_limit(int64_t{1} << 31); }
  void TearDown() override { set_memory_limit(0); }
};

TEST_F(Hostile, AConcatOfTwoTypes) {
  SingleOp op("Concat", 17);
  op.number("axis", 0);
  expect_says(refused(op, {floats({2}, {1, 2}), Tensor::of<double>({2}, std::vector<double>{1, 2})}), "one type");
  expect_says(refused(op, {Tensor::of<uint16_t>({1}, std::vector<uint16_t>{1}), floats({1}, {1})}), "one type");
}

TEST_F(Hostile, ALoopThatCollectsTwoTypes) {
  // Iteration 0 gives a float32, the others a float64.
  auto body = std::make_shared<Graph>();
  const auto branch = [](DType type) {
    auto graph = std::make_shared<Graph>();
    graph->nodes = {make_node("Cast", {"i"}, {"z"}, {{"to", static_cast<int64_t>(type), {}}})};
    graph->outputs = {make_value("z")};
    return graph;
  };
  body->inputs = {make_value("i", {}, DType::Int64), make_value("c", {}, DType::Bool)};
  body->nodes = {make_node("Cast", {"i"}, {"late"}, {{"to", static_cast<int64_t>(DType::Bool), {}}}),
                 make_node("If", {"late"}, {"y"},
                           {{"then_branch", branch(DType::Float64), {}}, {"else_branch", branch(DType::Float32), {}}}),
                 make_node("Identity", {"c"}, {"go_on"})};
  body->outputs = {make_value("go_on", {}, DType::Bool), make_value("y")};
  const Model model = make_model({make_node("Loop", {"n", ""}, {"all"}, {{"body", body, {}}})},
                                 {{"n", Tensor::scalar(int64_t{4}), {}, {}}}, {}, {"all"});
  expect_says(error_of(ErrorCode::InvalidInput, [&] { Engine(model).run({}); }), "float64 in another");
}

TEST_F(Hostile, ALoopThatCollectsMoreThanTheMemoryHolds) {
  auto body = std::make_shared<Graph>();
  body->inputs = {make_value("i", {}, DType::Int64), make_value("c", {}, DType::Bool)};
  body->nodes = {make_node("Identity", {"c"}, {"go_on"}), make_node("Identity", {"i"}, {"y"})};
  body->outputs = {make_value("go_on", {}, DType::Bool), make_value("y", {}, DType::Int64)};
  const Model model = make_model({make_node("Loop", {"n", ""}, {"all"}, {{"body", body, {}}})}, {},
                                 {make_value("n", {}, DType::Int64)}, {"all"});
  Engine engine(model);
  expect_longs(engine.run({{"n", longs({}, {3})}}).at(0), {3}, {0, 1, 2});
  expect_says(error_of(ErrorCode::InvalidInput, [&] { engine.run({{"n", longs({}, {kMost})}}); }), "trip count");
}

TEST_F(Hostile, AnOutputThatTheOperatorDoesNotMake) {
  const Model model = make_model({make_node("Relu", {"x"}, {"y", "z"})}, {}, {make_value("x", {2})}, {"y", "z"});
  const Tensor x = floats({2}, {-1, 1});
  expect_says(error_of(ErrorCode::InvalidInput,
                       [&] {
                         Engine(model).run({{"x", x}});
                       }),
              "does not make the output 'z'");
  Engine engine(model);
  Frame frame = engine.start({{"x", x}});
  frame.finish();
  expect_says(error_of(ErrorCode::InvalidInput, [&] { frame.outputs(); }), "does not make the output 'z'");
}

TEST_F(Hostile, OutputsWithoutAName) {
  Model model = make_model({make_node("Relu", {"x"}, {""}), make_node("Neg", {"x"}, {"y"}), make_node("Neg", {"y"}, {}),
                            make_node("Dropout", {"y"}, {"", "mask"})},
                           {}, {make_value("x", {2})}, {"y", "mask"});
  const std::vector<Tensor> outputs = Engine(model).run({{"x", floats({2}, {-1, 1})}});
  expect_floats(outputs[0], {2}, {1, -1});
}

TEST_F(Hostile, SumsOverNothing) {
  const Model sums = make_model({make_node("ReduceSum", {"x"}, {"y"})}, {}, {make_value("x", {3, 0})}, {"y"});
  expect_floats(Engine(sums).run({{"x", floats({3, 0}, {})}}).at(0), {1, 1}, {0});
  Node gemm = make_node("Gemm", {"x", "w", "b"}, {"g"});
  const Model product =
      make_model({gemm, make_node("Relu", {"g"}, {"y"})},
                 {make_constant("w", {0, 2}, {}), make_constant("b", {2}, {3, -3})}, {make_value("x", {1, 0})}, {"y"});
  expect_floats(Engine(product).run({{"x", floats({1, 0}, {})}}).at(0), {1, 2}, {3, 0});
  const Model columns = make_model({make_node("MatMul", {"x", "w"}, {"y"})}, {make_constant("w", {2, 0}, {})},
                                   {make_value("x", {1, 2})}, {"y"});
  EXPECT_EQ(Engine(columns).run({{"x", floats({1, 2}, {1, 2})}}).at(0).shape(), (Shape{1, 0}));
  SingleOp norm("BatchNormalization", 15);
  norm.number("training_mode", 1);
  const Tensor one = floats({1}, {1});
  expect_says(refused(norm, {floats({0, 1, 2}, {}), one, one, one, one}, 3), "nothing to take statistics of");
}

TEST_F(Hostile, ParametersThatDoNotFitTheChannels) {
  const Tensor x = counting({1, 4, 2});
  const Tensor one = floats({1}, {1});
  for (const int64_t training : {0, 1}) {
    SingleOp norm("BatchNormalization", 15);
    norm.number("training_mode", training);
    expect_says(refused(norm, {x, one, one, one, one}, training == 0 ? 1 : 3), "one number for each channel");
  }
  expect_says(refused(SingleOp("InstanceNormalization", 17), {x, one, one}), "one number for each channel");
}

TEST_F(Hostile, AttributesThatAreNoSizes) {
  const Tensor image = counting({1, 4, 2, 2});
  SingleOp depth("DepthToSpace", 17);
  expect_says(refused(depth.number("blocksize", int64_t{1} << 32), {image}), "numbers up to 2^31");
  SingleOp conv("Conv", 17);
  conv.ints("pads", {kMost, 0, 0, kMost});
  expect_says(refused(conv, {image, counting({1, 4, 1, 1})}), "numbers up to 2^31");
  SingleOp slice("Slice", 9);  // where any number is a place
  slice.ints("starts", {0}).ints("ends", {kMost});
  EXPECT_EQ(slice.run({image}).at(0).shape(), image.shape());
}

TEST_F(Hostile, MoreThanTheMemoryHolds) {
  const Tensor image = counting({1, 1, 2, 2});
  SingleOp resize("Resize", 17);
  expect_says(refused(resize, {image, {}, {}, longs({4}, {1, 1, kHuge, kHuge})}), "[1, 1, 1073741824, 1073741824]");
  expect_says(refused(resize, {image, {}, floats({4}, {1, 1, 1e5F, 1e5F})}), "are needed");
  SingleOp linear("Resize", 17);
  linear.text("mode", "linear");
  expect_says(refused(linear, {image, {}, floats({4}, {1, 1, 1e30F, 1})}), "too many");
  SingleOp conv("Conv", 17);
  conv.ints("pads", {kHuge, kHuge, kHuge, kHuge});
  expect_says(refused(conv, {image, counting({1, 1, 1, 1})}), "2^48");
  conv.ints("pads", {1 << 16, 1 << 16, 1 << 16, 1 << 16});
  expect_says(refused(conv, {image, counting({1, 1, 1, 1})}), "[1, 1, 131074, 131074]");
  expect_says(refused(SingleOp("ConstantOfShape", 17), {longs({2}, {kHuge, 4})}), "[1073741824, 4]");
  expect_says(refused(SingleOp("ConstantOfShape", 17), {longs({1}, {kMost})}), "up to 2^31");
  expect_says(refused(SingleOp("Tile", 17), {image, longs({4}, {kHuge, 1, 1, 1})}), "[1073741824, 1, 2, 2]");
  expect_says(refused(SingleOp("Expand", 17), {floats({1}, {1}), longs({2}, {kHuge, kHuge})}), "2^48");
  expect_says(refused(SingleOp("Pad", 17), {floats({1}, {1}), longs({2}, {0, kHuge})}), "[1073741825]");
  expect_says(refused(SingleOp("HannWindow", 17), {longs({}, {kHuge})}), "[1073741824]");
  expect_says(refused(SingleOp("Range", 17), {longs({}, {0}), longs({}, {kMost / 2}), longs({}, {1})}), "never end");
  SingleOp align("RoiAlign", 16);
  align.number("output_height", 1 << 20).number("output_width", 1 << 20).number("sampling_ratio", 2);
  expect_says(refused(align, {image, floats({1, 4}, {0, 0, 1, 1}), longs({1}, {0})}), "samples");
  SingleOp unpool("MaxUnpool", 11);
  unpool.ints("kernel_shape", {2, 2}).ints("strides", {1 << 20, 1 << 20});
  expect_says(refused(unpool, {image, longs({1, 1, 2, 2}, {0, 1, 2, 3})}), "are needed");
  SingleOp spread("ConvTranspose", 11);
  spread.ints("strides", {kHuge, kHuge});
  expect_says(refused(spread, {image, counting({1, 1, 1, 1})}), "2^48");
  spread.ints("strides", {1 << 18, 1 << 18});
  expect_says(refused(spread, {image, counting({1, 1, 1, 1})}), "[1, 1, 262145, 262145]");
  expect_says(refused(SingleOp("AffineGrid", 20), {counting({1, 2, 3}), longs({4}, {1, 1, kHuge, kHuge})}), "2^48");
  SingleOp count("TfIdfVectorizer", 9);
  count.text("mode", "TF").ints("pool_int64s", {1}).ints("ngram_counts", {0}).ints("ngram_indexes", {kHuge});
  expect_says(refused(count, {longs({1}, {1})}), "[1073741825]");
}

TEST_F(Hostile, ACastOfNothing) {
  Engine engine(make_model({make_node("Cast", {}, {"y"}, {{"to", int64_t{1}, {}}})}, {}, {}, {"y"}));
  EXPECT_THROW(engine.run({}), Error);
}

TEST_F(Hostile, WorkWithoutEnd) {
  const Tensor image = counting({1, 1, 4, 4});
  SingleOp pool("MaxPool", 17);
  pool.ints("kernel_shape", {200000, 200000}).ints("strides", {1, 1}).text("auto_pad", "SAME_UPPER");
  error_of(ErrorCode::InvalidInput, [&] { pool.run({image}); });
  SingleOp average("AveragePool", 17);
  average.ints("kernel_shape", {2, 2}).ints("pads", {5, 5, 5, 5});
  expect_says(refused(average, {image}), "less than the window's");
  SingleOp grams("TfIdfVectorizer", 9);
  grams.text("mode", "TF").ints("pool_int64s", {1}).ints("ngram_counts", {0}).ints("ngram_indexes", {0});
  grams.number("max_gram_length", kMost).number("max_skip_count", kMost);
  expect_floats(grams.run({longs({2}, {1, 1})}).at(0), {1}, {2});
  SingleOp wide("LRN", 17);
  wide.number("size", int64_t{1} << 30).real("alpha", 1.0F).real("bias", 0).real("beta", 1);
  expect_floats(wide.run({floats({1, 2, 1}, {1, 2})}).at(0), {1, 2, 1}, {0x1p30F / 5, 0x1p31F / 5});
  SingleOp rois("MaxRoiPool", 17);
  rois.ints("pooled_shape", {1 << 20, 1 << 20});
  expect_says(refused(rois, {image, floats({1, 5}, {0, 0, 0, 1, 1})}), "bins");
  const Tensor blocks = counting({1, 4, 4});
  expect_says(refused(SingleOp("Col2Im", 18), {blocks, longs({2}, {kHuge, kHuge}), longs({2}, {2, 2})}), "2^48");
  expect_says(refused(SingleOp("Col2Im", 18), {blocks, longs({1}, {kHuge}), longs({1}, {2})}), "does not hold");
  SingleOp shrink("Resize", 18);
  shrink.text("mode", "cubic").number("antialias", 1);
  EXPECT_EQ(shrink.run({image, {}, floats({4}, {1, 1, 1e-9F, 1e-9F})}).at(0).shape(), (Shape{1, 1, 0, 0}));
}

TEST_F(Hostile, RegionsAndBinsByTheThousand) {
  constexpr int64_t kMany = 1 << 15;
  const Tensor image = counting({1, 1, 4, 4});
  SingleOp tall("RoiAlign", 16);
  tall.number("output_height", kMany).number("output_width", 1).number("sampling_ratio", 2);
  const std::vector<Tensor> regions{image, floats({3, 4}, {0, 0, 1, 1, 1, 1, 3, 3, 0, 0, 3, 3}), longs({3}, {0, 0, 0})};
  EXPECT_EQ(tall.run(regions).at(0).shape(), (Shape{3, 1, kMany, 1}));
  SingleOp many("RoiAlign", 16);
  many.number("sampling_ratio", 1);
  const std::vector<Tensor> points{image, counting({kMany, 4}),
                                   longs({kMany}, std::vector<int64_t>(static_cast<size_t>(kMany)))};
  EXPECT_EQ(many.run(points).at(0).shape(), (Shape{kMany, 1, 1, 1}));
  tall.number("output_height", 1 << 21);
  expect_says(refused(tall, regions), "more than 16777216 samples");
}

}  // namespace
}  // namespace kaon
