#include "engine/ops/single_op_test.h"

namespace kaon {
namespace {

TEST(Pad, WrapsAndReflectsGivenAxes) {
  const std::vector<Tensor> inputs{counting({2, 3}), longs({2}, {2, 1}), {}, longs({1}, {-1})};
  expect_floats(SingleOp("Pad", 19).text("mode", "wrap").run(inputs)[0], {2, 6}, {2, 3, 1, 2, 3, 1, 5, 6, 4, 5, 6, 4});
  expect_floats(SingleOp("Pad", 18).text("mode", "reflect").run(inputs)[0], {2, 6},
                {3, 2, 1, 2, 3, 2, 6, 5, 4, 5, 6, 5});
}

TEST(Pad, OfOpset1TakesPaddings) {
  const Tensor y = SingleOp("Pad", 1).ints("paddings", {0, 1, 0, 0}).real("value", 7).run({counting({2, 1})})[0];
  expect_floats(y, {2, 2}, {7, 1, 7, 2});
}

TEST(Pad, CenterCropPadCutsAndFills) {
  expect_floats(SingleOp("CenterCropPad", 18).run({counting({3, 4}), longs({2}, {4, 1})})[0], {4, 1}, {2, 6, 10, 0});
  expect_floats(SingleOp("CenterCropPad", 18).ints("axes", {-1}).run({counting({2, 5}), longs({1}, {2})})[0], {2, 2},
                {2, 3, 7, 8});
}

TEST(Pad, Col2ImAddsOverlappingBlocks) {
  expect_floats(SingleOp("Col2Im", 18).run({counting({1, 4, 6}), longs({2}, {3, 4}), longs({2}, {2, 2})})[0],
                {1, 1, 3, 4}, {1, 9, 11, 9, 17, 48, 52, 33, 16, 39, 41, 24});
  EXPECT_THROW(SingleOp("Col2Im", 18).run({counting({1, 4, 5}), longs({2}, {3, 4}), longs({2}, {2, 2})}), Error);
}

}  // namespace
}  // namespace kaon
