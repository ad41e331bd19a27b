#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "data/dataset.h"
#include "data/expect_test.h"
#include "io/files_test.h"
#include "io/npy/npy.h"
#include "io/onnx/onnx.h"

namespace kaon {
namespace {

const std::vector<ValueInfo> kTwoInputs{input_of("ids", DType::Int64, {-1, 2}), input_of("x", DType::Float32, {-1, 3})};

TEST(Arrays, NpzIsSlicedAndConverted) {
  const TemporaryFolder folder;
  write_npz({{"labels", Tensor::of<uint8_t>({4}, std::vector<uint8_t>{7, 8, 9, 255})},
             {"x", Tensor::of<double>({4, 3}, std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0.1})},
             {"ids", Tensor::of<int32_t>({4, 2}, std::vector<int32_t>{1, 2, 3, 4, 5, 6, -7, 8})},
             {"other", Tensor::of<float>({1}, std::vector<float>{1})}},
            folder / "d.npz");
  const auto dataset = open_dataset(folder / "d.npz", kTwoInputs);
  EXPECT_EQ(dataset->size(), 4);
  ASSERT_TRUE(dataset->has_labels());
  const Batch batch = dataset->read(2, 2);
  ASSERT_EQ(batch.inputs.size(), 2U);
  EXPECT_EQ(batch.inputs.at("x").shape(), (Shape{2, 3}));
  EXPECT_EQ(values_of<float>(batch.inputs.at("x")), (std::vector<float>{6, 7, 8, 9, 10, 0.1F}));
  EXPECT_EQ(values_of<int64_t>(batch.inputs.at("ids")), (std::vector<int64_t>{5, 6, -7, 8}));
  EXPECT_EQ(values_of<int64_t>(batch.labels), (std::vector<int64_t>{9, 255}));
  EXPECT_EQ(dataset->read(4, 0).labels.shape(), Shape{0});
  EXPECT_THROW(dataset->read(3, 2), Error);
  EXPECT_THROW(dataset->read(-1, 1), Error);

  EXPECT_EQ(open_dataset(folder / "d.npz", kTwoInputs, {.limit = 3})->size(), 3);
  EXPECT_EQ(open_dataset(folder / "d.npz", kTwoInputs, {.limit = 30})->size(), 4);
}

TEST(Arrays, SameTypeIsShared) {
  const TemporaryFolder folder;
  write_npy(Tensor::of<float>({3, 2}, std::vector<float>{1, 2, 3, 4, 5, 6}), folder / "d.npy");
  const auto dataset = open_dataset(folder / "d.npy", {input_of("x", DType::Float32, {1, 2})});
  EXPECT_FALSE(dataset->has_labels());
  const Batch one = dataset->read(0, 3), two = dataset->read(1, 1);
  EXPECT_EQ(two.inputs.at("x").bytes().data(), one.inputs.at("x").bytes().data() + 2 * sizeof(float));
  EXPECT_FALSE(two.labels.defined());
}

TEST(Arrays, LabelsOfTokens) {
  const TemporaryFolder folder;
  write_npz({{"x", Tensor::of<float>({2, 3}, std::vector<float>(6))},
             {"labels", Tensor::of<int64_t>({2, 2}, std::vector<int64_t>{1, 2, 3, 4})}},
            folder / "d.npz");
  const Batch batch = open_dataset(folder / "d.npz", {input_of("x", DType::Float32, {-1, 3})})->read(1, 1);
  EXPECT_EQ(batch.labels.shape(), (Shape{1, 2}));
  EXPECT_EQ(values_of<int64_t>(batch.labels), (std::vector<int64_t>{3, 4}));
}

TEST(Arrays, ConvertsWhatKeepsTheValue) {
  const TemporaryFolder folder;
  const auto through = [&](const Tensor& tensor, DType type) {
    write_npy(tensor, folder / "d.npy");
    return open_dataset(folder / "d.npy", {input_of("x", type, {-1})})->read(0, tensor.size()).inputs.at("x");
  };
  const Tensor bytes = Tensor::of<uint8_t>({3}, std::vector<uint8_t>{0, 128, 255});
  EXPECT_EQ(values_of<float>(through(bytes, DType::Float32)), (std::vector<float>{0, 128, 255}));
  EXPECT_EQ(values_of<double>(through(bytes, DType::Float64)), (std::vector<double>{0, 128, 255}));
  EXPECT_EQ(values_of<int32_t>(through(bytes, DType::Int32)), (std::vector<int32_t>{0, 128, 255}));
  const Tensor floats = Tensor::of<float>({3}, std::vector<float>{1.0F / 3, 1e6F, -2});
  const Tensor halves = through(floats, DType::Float16);
  EXPECT_EQ(halves.type(), DType::Float16);
  EXPECT_EQ(halves.to_float(), (std::vector<float>{0.333251953125F, std::numeric_limits<float>::infinity(), -2}));
  EXPECT_EQ(through(halves, DType::Float32).to_float(), halves.to_float());

  for (const DType type : {DType::UInt8, DType::Int64, DType::Bool}) {
    expect_error(ErrorCode::InvalidInput, "the array is float32, but the model's input 'x' is",
                 [&] { through(floats, type); });
  }
  const Tensor wide = Tensor::of<int64_t>({1}, std::vector<int64_t>{1});
  EXPECT_THROW(through(wide, DType::Int32), Error);
  EXPECT_THROW(through(wide, DType::Float32), Error);
  EXPECT_THROW(through(Tensor::of<uint64_t>({1}, std::vector<uint64_t>{1}), DType::Int64), Error);
}

TEST(Arrays, SaysWhatDoesNotFit) {
  const TemporaryFolder folder;
  const Tensor x = Tensor::of<float>({4, 3}, std::vector<float>(12));
  const Tensor ids = Tensor::of<int64_t>({4, 2}, std::vector<int64_t>(8));
  const auto refused = [&](const std::string& message, const NamedTensors& arrays) {
    write_npz(arrays, folder / "d.npz");
    expect_error(ErrorCode::InvalidInput, message, [&] { open_dataset(folder / "d.npz", kTwoInputs); });
  };
  refused("holds 'x', but the model needs 'ids': int64 [N, 2], 'x': float32 [N, 3]", {{"x", x}});
  refused("holds no arrays", {});
  refused("array 'x' is [N, 4] with N samples along the first axis, but the model's input 'x' is float32 [N, 3]",
          {{"ids", ids}, {"x", Tensor::of<float>({4, 4}, std::vector<float>(16))}});
  refused("array 'x' is [N] with N samples", {{"ids", ids}, {"x", Tensor::of<float>({4}, std::vector<float>(4))}});
  refused("array 'x' is a single number", {{"ids", ids}, {"x", Tensor::scalar<float>(1)}});
  refused("array 'x' holds 5 samples, but the arrays before it 4",
          {{"ids", ids}, {"x", Tensor::of<float>({5, 3}, std::vector<float>(15))}});
  refused("array 'labels' holds 2 samples", {{"ids", ids}, {"x", x}, {"labels", ids.reshaped({2, 4})}});
  refused("array 'labels' is float32; classes are integers", {{"ids", ids}, {"x", x}, {"labels", x}});
  refused("array 'labels' is a single number", {{"ids", ids}, {"x", x}, {"labels", Tensor::scalar<int64_t>(1)}});
  refused("the model takes no array 'label'; did you mean 'labels'?", {{"ids", ids}, {"x", x}, {"label", ids}});
  refused("holds no samples", {{"ids", Tensor::of<int64_t>({0, 2}, std::vector<int64_t>())},
                               {"x", Tensor::of<float>({0, 3}, std::vector<float>())}});
  write_npy(x, folder / "d.npy");
  expect_error(ErrorCode::InvalidInput, "holds one array, but the model takes 'ids': int64 [N, 2], 'x'",
               [&] { open_dataset(folder / "d.npy", kTwoInputs); });
  expect_error(ErrorCode::InvalidInput, "a limit of -1", [&] {
    open_dataset(folder / "d.npy", {input_of("x", DType::Float32, {-1, 3})}, {.limit = -1});
  });
}

TEST(Arrays, PathsThatAreNoData) {
  const TemporaryFolder folder;
  const std::vector<ValueInfo> inputs{input_of("x", DType::Float32, {-1, 3})};
  expect_error(ErrorCode::Io, "no such file or folder", [&] { open_dataset(folder / "none.npz", inputs); });
  expect_error(ErrorCode::InvalidInput, "without input_0.pb", [&] { open_dataset(folder.path(), inputs); });
  write_file(folder / "d.csv", "1,2");
  expect_error(ErrorCode::InvalidInput, "no kind of data known by '.csv'",
               [&] { open_dataset(folder / "d.csv", inputs); });
  write_file(folder / "d.npz", "PK, but not really");
  expect_error(ErrorCode::CorruptFile, "d.npz", [&] { open_dataset(folder / "d.npz", inputs); });
}

TEST(TestData, IsSlicedWhereInputsShareSamples) {
  const TemporaryFolder folder;
  write_tensor_proto(Tensor::of<int64_t>({2, 2}, std::vector<int64_t>{1, 2, 3, 4}), folder / "input_0.pb");
  write_tensor_proto(Tensor::of<float>({2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6}), folder / "input_1.pb");
  const auto dataset = open_dataset(folder.path(), kTwoInputs);
  ASSERT_EQ(dataset->size(), 2);
  EXPECT_EQ(values_of<float>(dataset->read(1, 1).inputs.at("x")), (std::vector<float>{4, 5, 6}));
  EXPECT_FALSE(dataset->has_labels());
  expect_error(ErrorCode::InvalidInput, "holds 2 files input_N.pb, but the model needs 1",
               [&] { open_dataset(folder.path(), {kTwoInputs[0]}); });
}

TEST(TestData, IsOneSampleWhereTheyDoNot) {
  const TemporaryFolder folder;
  write_tensor_proto(Tensor::scalar<int64_t>(5), folder / "input_0.pb");
  write_tensor_proto(Tensor::of<float>({2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6}), folder / "input_1.pb");
  const std::vector<ValueInfo> inputs{input_of("k", DType::Int64, {}), kTwoInputs[1]};
  const auto dataset = open_dataset(folder.path(), inputs);
  ASSERT_EQ(dataset->size(), 1);
  const Batch batch = dataset->read(0, 1);
  EXPECT_EQ(batch.inputs.at("k").rank(), 0);
  EXPECT_EQ(batch.inputs.at("x").shape(), (Shape{2, 3}));
  EXPECT_THROW(dataset->read(1, 1), Error);
  expect_error(ErrorCode::InvalidInput, "input_0.pb is int64, but the model's input 'k' is float32", [&] {
    open_dataset(folder.path(), {input_of("k", DType::Float32, {}), kTwoInputs[1]});
  });
}

}  // namespace
}  // namespace kaon
