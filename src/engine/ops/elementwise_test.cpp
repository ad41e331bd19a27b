// What ONNX's own tests leave out: forms of old opsets, unsigned carriers, integers at the edge of their range.
#include <limits>

#include "engine/ops/single_op_test.h"

namespace kaon {
namespace {

template <typename T>
Tensor vec(const std::vector<T>& numbers) {
  return Tensor::of<T>({std::ssize(numbers)}, numbers);
}

template <typename T>
std::vector<T> list(const Tensor& tensor) {
  return {tensor.as<T>().begin(), tensor.as<T>().end()};
}

template <typename T>
std::vector<T> binary(const std::string& op, const std::vector<T>& a, const std::vector<T>& b) {
  return list<T>(SingleOp(op, 13).run({vec(a), vec(b)})[0]);
}

TEST(Elementwise, AlignsTheSecondInputBeforeOpset7) {
  SingleOp add("Add", 6);
  add.number("broadcast", 1).number("axis", 0);
  expect_floats(add.run({counting({2, 3}), floats({2}, {10, 20})})[0], {2, 3}, {11, 12, 13, 24, 25, 26});
}

TEST(Elementwise, DividesIntegersTowardsZero) {
  constexpr int32_t kLowest = std::numeric_limits<int32_t>::min();
  EXPECT_EQ(binary<int32_t>("Div", {-7, 7, kLowest}, {2, -2, -1}), (std::vector<int32_t>{-3, -3, kLowest}));
  EXPECT_EQ(binary<int64_t>("Mod", {-7, 7, std::numeric_limits<int64_t>::min()}, {3, -3, -1}),
            (std::vector<int64_t>{2, -2, 0}));
  EXPECT_THROW(binary<int32_t>("Div", {1}, {0}), Error);
  EXPECT_THROW(binary<uint64_t>("Mod", {1}, {0}), Error);
}

TEST(Elementwise, TreatsUnsignedCarriersAsUnsigned) {
  constexpr uint64_t kHuge = ~uint64_t{0};
  EXPECT_EQ(binary<uint16_t>("Sub", {1}, {2}), (std::vector<uint16_t>{65535}));
  EXPECT_EQ(binary<uint32_t>("Mul", {4294967295U}, {4294967295U}), (std::vector<uint32_t>{1}));
  EXPECT_EQ(binary<uint64_t>("Div", {kHuge}, {2}), (std::vector<uint64_t>{kHuge / 2}));
  EXPECT_EQ(binary<uint64_t>("Max", {kHuge}, {2}), (std::vector<uint64_t>{kHuge}));
  const Tensor greater = SingleOp("Greater", 13).run({vec<uint64_t>({kHuge}), vec<uint64_t>({2})})[0];
  EXPECT_EQ(list<bool>(greater), std::vector<bool>{true});
  SingleOp shift("BitShift", 11);
  shift.text("direction", "RIGHT");
  EXPECT_EQ(list<uint64_t>(shift.run({vec<uint64_t>({kHuge, kHuge}), vec<uint64_t>({63, 64})})[0]),
            (std::vector<uint64_t>{1, 0}));
}

TEST(Elementwise, ClipsByAttributeAndByInput) {
  const Tensor x = floats({3}, {-2, 0, 2});
  expect_floats(SingleOp("Clip", 6).real("max", 1).run({x})[0], {3}, {-2, 0, 1});
  expect_floats(SingleOp("Clip", 13).run({x, floats({}, {-1}), floats({}, {1})})[0], {3}, {-1, 0, 1});
}

TEST(Elementwise, MaskOfDropoutFollowsTheOpset) {
  EXPECT_EQ(SingleOp("Dropout", 7).run({counting({2})}, 2)[1].type(), DType::Float32);
  EXPECT_EQ(SingleOp("Dropout", 13).run({counting({2})}, 2)[1].type(), DType::Bool);
}

TEST(Elementwise, CastOfOpset1NamesItsType) {
  EXPECT_EQ(SingleOp("Cast", 1).text("to", "INT32").run({floats({1}, {2.5F})})[0].type(), DType::Int32);
  EXPECT_THROW(SingleOp("Cast", 1).text("to", "STRING").run({counting({1})}), Error);
}

}  // namespace
}  // namespace kaon
