#include "graph/tensor.h"

#include <cmath>

#include "graph/build_test.h"
#include "graph/finite.h"

namespace kaon {
namespace {

Tensor of_bytes(DType type, Shape shape, const std::vector<uint8_t>& bytes) {
  return Tensor::copy_bytes(type, std::move(shape), std::as_bytes(std::span(bytes)));
}

TEST(Shape, CountsElements) {
  EXPECT_EQ(element_count(Shape{}), 1);
  EXPECT_EQ(element_count(Shape{2, 0, 3}), 0);
  EXPECT_EQ(element_count(Shape{2, 5, 3}), 30);
  EXPECT_EQ(to_string(Shape{2, 3}), "[2, 3]");
  EXPECT_EQ(error_of(ErrorCode::InvalidInput,
                     [] {
                       element_count(Shape{2, -1});
                     }),
            "[2, -1]: a shape with a negative dimension");
  error_of(ErrorCode::InvalidInput, [] { element_count(Shape{int64_t{1} << 40, int64_t{1} << 40}); });
}

TEST(Tensor, KeepsWhatItIsGiven) {
  const Tensor tensor = Tensor::of({2, 2}, std::vector<float>{1, 2, 3, 4});
  EXPECT_EQ(tensor.type(), DType::Float32);
  EXPECT_EQ(tensor.size(), 4);
  EXPECT_EQ(tensor.byte_size(), 16);
  EXPECT_EQ(tensor.as<float>()[3], 4.0F);
  const Tensor flat = tensor.reshaped({4});
  EXPECT_EQ(flat.shape(), (Shape{4}));
  EXPECT_EQ(flat.bytes().data(), tensor.bytes().data()) << "copies share the data";
  EXPECT_FALSE(Tensor().defined());
}

TEST(Tensor, TakesValuesOver) {
  std::vector<float> values(1000, 3);
  const void* before = values.data();
  EXPECT_EQ(Tensor::of({1000}, std::move(values)).bytes().data(), before);
  EXPECT_EQ(error_of(ErrorCode::InvalidInput, [] { Tensor::of({3}, std::vector<float>(2)); }),
            "[3]: float32 of this shape takes 12 bytes, not 8");
}

TEST(Tensor, IsFilled) {
  const Tensor tensor = Tensor::filled<int64_t>({2, 3}, [](std::span<int64_t> values) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int64_t>(i);
  });
  EXPECT_EQ(tensor.to_int64(), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(tensor.shape(), (Shape{2, 3}));
}

TEST(Tensor, FirstNonFiniteOfManyThreads) {
  std::vector<float> values(3'000'000, 1);
  EXPECT_EQ(first_non_finite(Tensor::of({3'000'000}, values)), -1);
  values[2'999'999] = NAN;
  EXPECT_EQ(first_non_finite(Tensor::of({3'000'000}, values)), 2'999'999);
  values[2'000'001] = -INFINITY;
  values[2'000'002] = NAN;
  EXPECT_EQ(first_non_finite(Tensor::of({3'000'000}, values)), 2'000'001);
}

TEST(Tensor, RefusesWhatDoesNotFit) {
  const Tensor tensor = Tensor::of({2}, std::vector<float>{1, 2});
  EXPECT_EQ(error_of(ErrorCode::InvalidInput, [&] { tensor.as<int64_t>(); }),
            "[2]: a float32 tensor where int64 is needed");
  EXPECT_EQ(error_of(ErrorCode::InvalidInput, [&] { tensor.reshaped({3}); }), "[3]: cannot hold the 2 elements of [2]");
  EXPECT_EQ(error_of(ErrorCode::InvalidInput, [] { of_bytes(DType::Int4, {3}, {0}); }),
            "[3]: int4 of this shape takes 2 bytes, not 1");
  error_of(ErrorCode::InvalidInput, [&] { tensor.to_int64(); });
  error_of(ErrorCode::InvalidInput, [&] { Tensor::of_strings({2}, {"a"}); });
}

TEST(Tensor, WidensIntegers) {
  EXPECT_EQ(of_bytes(DType::Int8, {2}, {0xFF, 5}).to_int64(), (std::vector<int64_t>{-1, 5}));
  EXPECT_EQ(of_bytes(DType::UInt8, {1}, {0xFF}).to_int64(), (std::vector<int64_t>{255}));
  EXPECT_EQ(of_bytes(DType::Bool, {2}, {1, 0}).to_int64(), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(Tensor::scalar<int32_t>(-7).to_int64(), (std::vector<int64_t>{-7}));
  EXPECT_EQ(of_bytes(DType::UInt4, {3}, {0x8F, 0x01}).to_int64(), (std::vector<int64_t>{15, 8, 1}));
  EXPECT_EQ(of_bytes(DType::Int4, {2}, {0x8F}).to_int64(), (std::vector<int64_t>{-1, -8}));
}

TEST(Tensor, DecodesEveryKindOfNumber) {
  const auto one = [](const Tensor& tensor) { return tensor.to_float().at(0); };
  EXPECT_EQ(one(of_bytes(DType::Float16, {1}, {0x00, 0x3C})), 1.0F);
  EXPECT_EQ(one(of_bytes(DType::BFloat16, {1}, {0xC0, 0x3F})), 1.5F);
  EXPECT_EQ(one(of_bytes(DType::Float8E4M3FN, {1}, {0x38})), 1.0F);
  EXPECT_EQ(one(of_bytes(DType::Float8E5M2, {1}, {0x3C})), 1.0F);
  EXPECT_EQ(one(Tensor::scalar(0.25)), 0.25F);
  EXPECT_EQ(one(Tensor::scalar<int64_t>(-3)), -3.0F);
  EXPECT_EQ(one(Tensor::scalar(true)), 1.0F);
  EXPECT_EQ(of_bytes(DType::Int4, {3}, {0x7F, 0x08}).to_float(), (std::vector<float>{-1, 7, -8}));
  EXPECT_EQ(of_bytes(DType::UInt4, {3}, {0x7F, 0x08}).to_float(), (std::vector<float>{15, 7, 8}));
  EXPECT_EQ(of_bytes(DType::Float4E2M1, {2}, {0x2A}).to_float(), (std::vector<float>{-1, 1}));
}

TEST(DType, EveryNumberHasItsName) {
  EXPECT_EQ(name_of(DType::Float8E4M3FN), "float8e4m3fn");
  EXPECT_EQ(bits_of(DType::Int4), 4);
  EXPECT_EQ(bits_of(static_cast<DType>(1000)), 0);
  EXPECT_FALSE(is_known(DType::Undefined));
  EXPECT_EQ(name_of(static_cast<DType>(-1)), "unknown");
}

}  // namespace
}  // namespace kaon
