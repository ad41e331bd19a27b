#include "engine/ops/single_op_test.h"

namespace kaon {
namespace {

TEST(Movement, ReshapeOfOpset1TakesAnAttribute) {
  expect_floats(SingleOp("Reshape", 1).ints("shape", {-1, 0}).run({counting({3, 2})})[0], {3, 2}, {1, 2, 3, 4, 5, 6});
}

TEST(Movement, ReshapeResolvesOpenDimensionOfEmptyTensor) {
  EXPECT_EQ(SingleOp("Reshape", 14).run({floats({0, 3}, {}), longs({2}, {0, -1})})[0].shape(), (Shape{0, 0}));
}

TEST(Movement, ReshapeToOtherSizeFails) {
  SingleOp op("Reshape", 14);
  EXPECT_THROW(op.run({counting({2, 3}), longs({2}, {4, 2})}), Error);
  EXPECT_THROW(op.run({counting({2, 3}), longs({2}, {-1, -1})}), Error);
  EXPECT_THROW(op.run({counting({2, 3}), longs({3}, {2, 3, 0})}), Error);
}

TEST(Movement, ConcatOfOpset1JoinsAxis1) {
  expect_floats(SingleOp("Concat", 1).run({counting({2, 1}), counting({2, 1})})[0], {2, 2}, {1, 1, 2, 2});
  EXPECT_THROW(SingleOp("Concat", 4).run({counting({2, 1})}), Error);
}

TEST(Movement, TileOfOpset1RepeatsOneAxis) {
  expect_floats(SingleOp("Tile", 1).run({counting({2, 1}), longs({}, {2}), longs({}, {1})})[0], {2, 2}, {1, 1, 2, 2});
}

TEST(Movement, SplitIntoUnevenParts) {
  const std::vector<Tensor> parts = SingleOp("Split", 18).number("num_outputs", 3).run({counting({7})}, 3);
  expect_floats(parts[0], {3}, {1, 2, 3});
  expect_floats(parts[1], {3}, {4, 5, 6});
  expect_floats(parts[2], {1}, {7});
}

TEST(Movement, SplitThatDoesNotCoverTheAxisFails) {
  EXPECT_THROW(SingleOp("Split", 13).run({counting({7}), longs({2}, {3, 3})}, 2), Error);
  EXPECT_THROW(SingleOp("Split", 13).run({counting({7}), longs({2}, {-1, 8})}, 2), Error);
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  EXPECT_THROW(SingleOp("Split", 13).run({counting({7}), longs({2}, {kLeast, kLeast + 7})}, 2), Error);
}

TEST(Movement, SliceBackwards) {
  const Tensor y =
      SingleOp("Slice", 13)
          .run({counting({5}), longs({1}, {-1}), longs({1}, {INT64_MIN}), longs({1}, {0}), longs({1}, {-2})})[0];
  expect_floats(y, {3}, {5, 3, 1});
}

TEST(Movement, SliceWithStepZeroFails) {
  SingleOp op("Slice", 13);
  EXPECT_THROW(op.run({counting({5}), longs({1}, {0}), longs({1}, {4}), longs({1}, {0}), longs({1}, {0})}), Error);
}

TEST(Movement, TypesWithoutAnAtenTypeSurvive) {
  const Tensor x = Tensor::of<uint16_t>({2, 2}, std::vector<uint16_t>{1, 65535, 3, 4});
  const Tensor y = SingleOp("Transpose", 13).run({x})[0];
  EXPECT_EQ(y.type(), DType::UInt16);
  EXPECT_EQ(y.to_int64(), (std::vector<int64_t>{1, 3, 65535, 4}));
}

}  // namespace
}  // namespace kaon
