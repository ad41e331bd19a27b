#include <limits>

#include "engine/ops/single_op_test.h"

namespace kaon {
namespace {

TEST(Reduce, TopKPutsTheLowerIndexFirstAmongEquals) {
  const Tensor x = floats({5}, {1, 3, 3, 2, 3});
  expect_longs(SingleOp("TopK", 1).number("k", 2).run({x}, 2)[1], {2}, {1, 2});
  expect_longs(SingleOp("TopK", 11).number("largest", 0).run({x, longs({1}, {3})}, 2)[1], {3}, {0, 3, 1});
  EXPECT_THROW(SingleOp("TopK", 11).run({x, longs({1}, {6})}, 2), Error);
}

TEST(Reduce, KnowsTheExtremesOfNothing) {
  SingleOp largest("ReduceMax", 13);
  largest.ints("axes", {1}).number("keepdims", 0);
  const Tensor numbers = largest.run({floats({2, 0}, {})})[0];
  ASSERT_EQ(numbers.shape(), Shape{2});
  EXPECT_EQ(numbers.as<float>()[1], -std::numeric_limits<float>::infinity());
  expect_longs(largest.run({longs({2, 0}, {})})[0], {2}, std::vector<int64_t>(2, std::numeric_limits<int64_t>::min()));
}

TEST(Reduce, LeavesAllAxesAloneWhenAskedTo) {
  expect_floats(SingleOp("ReduceL1", 18).number("noop_with_empty_axes", 1).run({floats({2}, {3, -4})})[0], {2}, {3, 4});
  expect_floats(SingleOp("ReduceL1", 18).run({floats({2}, {3, -4})})[0], {1}, {7});
}

TEST(Reduce, NamesAnAxisThatIsNotThere) {
  EXPECT_THROW(SingleOp("ReduceSum", 11).ints("axes", {2}).run({counting({2, 2})}), Error);
  EXPECT_THROW(SingleOp("ArgMax", 13).number("axis", -3).run({counting({2, 2})}), Error);
}

}  // namespace
}  // namespace kaon
