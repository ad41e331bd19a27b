#include "engine/ops/single_op_test.h"

namespace kaon {
namespace {

TEST(Norm, GroupNormalizationScalesByGroupThenByChannel) {
  expect_floats(SingleOp("GroupNormalization", 18)
                    .number("num_groups", 2)
                    .run({counting({1, 4, 2}), floats({2}, {1, 2}), floats({2}, {0, 10})})[0],
                {1, 4, 2}, {-1.34164F, -0.447212F, 0.447212F, 1.34164F, 7.31673F, 9.10558F, 10.8944F, 12.6833F});
  expect_floats(SingleOp("GroupNormalization", 21)
                    .number("num_groups", 2)
                    .run({counting({1, 4, 2}), floats({4}, {1, 2, 3, 4}), floats({4}, {0, 10, 20, 30})})[0],
                {1, 4, 2}, {-1.34164F, -0.447212F, 10.8944F, 12.6833F, 15.9751F, 18.6584F, 31.7888F, 35.3665F});
}

TEST(Norm, RmsNormalization) {
  expect_floats(
      SingleOp("RMSNormalization", 23).real("epsilon", 0.5F).run({counting({2, 3}), floats({3}, {1, 2, 3})})[0], {2, 3},
      {0.439941F, 1.75977F, 3.95947F, 0.781962F, 1.95491F, 3.51883F});
}

TEST(Norm, LayerNormalizationGivesItsStatistics) {
  const std::vector<Tensor> y =
      SingleOp("LayerNormalization", 17).run({counting({2, 2}), floats({2}, {1, 2}), floats({2}, {0, 10})}, 3);
  expect_floats(y[0], {2, 2}, {-0.99998F, 11.99996F, -0.99998F, 11.99996F});
  expect_floats(y[1], {2, 1}, {1.5F, 3.5F});
  expect_floats(y[2], {2, 1}, {1.99996F, 1.99996F});
}

TEST(Norm, SkipSimplifiedLayerNormalizationAddsSkipAndBias) {
  const std::vector<Tensor> y =
      SingleOp("SkipSimplifiedLayerNormalization", 17, "com.microsoft")
          .real("epsilon", 0.5F)
          .run({counting({1, 1, 4}), counting({1, 1, 4}), floats({4}, {1, 1, 2, 2}), floats({4}, {1, 0, 0, -1})});
  expect_floats(y[0], {1, 1, 4}, {0.566947F, 0.755929F, 2.26779F, 2.64575F});
}

TEST(Norm, SkipLayerNormalizationGivesTheSum) {
  const std::vector<Tensor> y = SingleOp("SkipLayerNormalization", 17, "com.microsoft")
                                    .run({counting({1, 1, 4}), counting({1, 1, 4}), floats({4}, {1, 1, 1, 2})}, 4);
  expect_floats(y[0], {1, 1, 4}, {-1.341641F, -0.447214F, 0.447214F, 2.683282F});
  expect_floats(y[1], {1, 1, 1}, {5});
  expect_floats(y[3], {1, 1, 4}, {2, 4, 6, 8});
}

TEST(Norm, BatchNormalizationBeforeOpset14TrainsWhenAskedForStatistics) {
  const std::vector<Tensor> inputs{floats({2, 1}, {1, 3}), floats({1}, {2}), floats({1}, {5}), floats({1}, {10}),
                                   floats({1}, {4})};
  SingleOp op("BatchNormalization", 9);
  op.real("epsilon", 0).real("momentum", 0.5F);
  expect_floats(op.run(inputs)[0], {2, 1}, {-4, -2});
  const std::vector<Tensor> trained = op.run(inputs, 3);
  expect_floats(trained[0], {2, 1}, {3, 7});
  expect_floats(trained[1], {1}, {6});
  expect_floats(trained[2], {1}, {2.5F});
}

TEST(Norm, LpNormalizationOfZerosIsZero) {
  expect_floats(SingleOp("LpNormalization", 1).run({floats({2, 2}, {0, 0, 3, 4})})[0], {2, 2}, {0, 0, 0.6F, 0.8F});
}

}  // namespace
}  // namespace kaon
