#include "engine/ops/single_op_test.h"

namespace kaon {
namespace {

TEST(Resize, Antialias) {
  SingleOp linear("Resize", 18);
  linear.text("mode", "linear").number("antialias", 1).ints("axes", {3});
  expect_floats(linear.run({counting({1, 1, 1, 4}), {}, {}, longs({1}, {2})})[0], {1, 1, 1, 2}, {1.625F, 3.375F});
  SingleOp cubic("Resize", 18);
  cubic.text("mode", "cubic").number("antialias", 1).ints("axes", {3});
  expect_floats(cubic.run({counting({1, 1, 1, 6}), {}, floats({1}, {0.5F})})[0], {1, 1, 1, 3},
                {1.472656F, 3.5F, 5.527344F});
}

TEST(Resize, KeepsAspectRatio) {
  const std::vector<Tensor> inputs{counting({2, 4}), {}, {}, longs({2}, {4, 4})};
  SingleOp larger("Resize", 18);
  larger.text("keep_aspect_ratio_policy", "not_larger").ints("axes", {0, 1});
  EXPECT_EQ(larger.run(inputs)[0].shape(), (Shape{2, 4}));
  SingleOp smaller("Resize", 18);
  smaller.text("keep_aspect_ratio_policy", "not_smaller").ints("axes", {0, 1});
  expect_floats(smaller.run(inputs)[0], {4, 8},
                {1, 1, 2, 2, 3, 3, 4, 4, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 5, 5, 6, 6, 7, 7, 8, 8});
}

TEST(Resize, HalfPixelSymmetricStaysCentered) {
  SingleOp op("Resize", 19);
  op.text("mode", "linear").text("coordinate_transformation_mode", "half_pixel_symmetric");
  expect_floats(op.run({counting({1, 1, 1, 5}), {}, floats({4}, {1, 1, 1, 0.5F})})[0], {1, 1, 1, 2}, {2, 4});
}

TEST(Resize, BadScalesFail) {
  SingleOp op("Resize", 13);
  EXPECT_THROW(op.run({counting({1, 2}), {}, floats({1}, {2})}), Error);
  EXPECT_THROW(op.run({counting({1, 2}), {}, floats({2}, {1, -2})}), Error);
  EXPECT_THROW(op.run({counting({1, 2}), {}, {}, {}}), Error);
  EXPECT_THROW(SingleOp("Resize", 13).text("mode", "area").run({counting({1, 2}), {}, floats({2}, {1, 2})}), Error);
}

TEST(Upsample, OfOpset1TakesTwoScales) {
  SingleOp op("Upsample", 1);
  op.real("height_scale", 1).real("width_scale", 2);
  expect_floats(op.run({counting({1, 1, 1, 2})})[0], {1, 1, 1, 4}, {1, 1, 2, 2});
}

TEST(GridSample, Volume) {
  SingleOp op("GridSample", 20);
  op.text("mode", "linear").number("align_corners", 1);
  expect_floats(
      op.run({counting({1, 1, 2, 2, 2}), floats({1, 1, 1, 3, 3}, {0, 0, 0, 0.5F, -0.5F, 1, -1, -1, -1.5F})})[0],
      {1, 1, 1, 1, 3}, {4.5F, 6.25F, 0.75F});
}

TEST(AffineGrid, Plane) {
  expect_floats(SingleOp("AffineGrid", 20).run({floats({1, 2, 3}, {1, 0, 0.5F, 0, 2, 0}), longs({4}, {1, 1, 2, 2})})[0],
                {1, 2, 2, 2}, {0, -1, 1, -1, 0, 1, 1, 1});
}

}  // namespace
}  // namespace kaon
