#include "engine/ops/single_op_test.h"

namespace kaon {
namespace {

TEST(Detection, NonMaxSuppressionKeepsTheBestOfOverlapping) {
  const Tensor boxes = floats({1, 3, 4}, {0, 0, 1, 1, 0, 0.1F, 1, 1.1F, 0, 2, 1, 3});
  const Tensor scores = floats({1, 1, 3}, {0.6F, 0.9F, 0.3F});
  expect_longs(SingleOp("NonMaxSuppression", 11).run({boxes, scores, longs({1}, {2}), floats({1}, {0.5F})})[0], {2, 3},
               {0, 0, 1, 0, 0, 2});
  EXPECT_EQ(SingleOp("NonMaxSuppression", 11).run({boxes, scores})[0].shape(), (Shape{0, 3}));
  EXPECT_THROW(SingleOp("NonMaxSuppression", 11).run({boxes, floats({1, 1, 2}, {1, 2})}), Error);
}

TEST(Detection, RoiAlignOfOpset16ShiftsByHalfAPixel) {
  SingleOp op("RoiAlign", 16);
  op.number("output_height", 2).number("output_width", 1).number("sampling_ratio", 2);
  const std::vector<Tensor> inputs{counting({1, 1, 3, 3}), floats({1, 4}, {0, 0, 2, 2}), longs({1}, {0})};
  expect_floats(op.run(inputs)[0], {1, 1, 2, 1}, {1.875F, 4.5F});
  EXPECT_THROW(op.run({inputs[0], inputs[1], longs({1}, {1})}), Error);
}

TEST(Detection, RegionsOfAnySizeKeepTheirPlaces) {
  SingleOp op("RoiAlign", 16);
  const Tensor images = counting({2, 2, 4, 4});
  const std::vector<std::vector<float>> rois{{0, 0, 4, 4}, {1, 1, 2, 2}, {0, 1, 4, 2}, {1, 1, 2, 2}, {2, 2, 2, 2}};
  const std::vector<int64_t> of{0, 1, 1, 0, 0};
  std::vector<float> all, expected;
  for (size_t i = 0; i < rois.size(); ++i) {
    all.insert(all.end(), rois[i].begin(), rois[i].end());
    const std::vector<float> alone = op.run({images, floats({1, 4}, rois[i]), longs({1}, {of[i]})})[0].to_float();
    expected.insert(expected.end(), alone.begin(), alone.end());
  }
  expect_floats(op.run({images, floats({5, 4}, all), longs({5}, of)})[0], {5, 2, 1, 1}, expected);
  EXPECT_NE(expected[2], expected[6]);
  EXPECT_EQ(op.run({images, floats({0, 4}, {}), longs({0}, {})})[0].shape(), (Shape{0, 2, 1, 1}));
}

}  // namespace
}  // namespace kaon
