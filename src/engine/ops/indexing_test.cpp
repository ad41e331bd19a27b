#include "engine/ops/single_op_test.h"

namespace kaon {
namespace {

TEST(Indexing, ScatterElementsReduces) {
  const std::vector<std::pair<std::string, std::vector<float>>> cases{{"add", {2, 2, 3, 4, 5, 7}},
                                                                      {"mul", {-20, 2, 3, 4, 5, -36}},
                                                                      {"min", {-4, 2, 3, 4, 5, -2}},
                                                                      {"max", {5, 2, 3, 4, 5, 6}}};
  for (const auto& [how, wanted] : cases) {
    SCOPED_TRACE(how);
    SingleOp op("ScatterElements", 18);
    op.number("axis", 1).text("reduction", how);
    expect_floats(op.run({counting({2, 3}), longs({2, 2}, {0, 0, 2, -1}), floats({2, 2}, {5, -4, 3, -2})})[0], {2, 3},
                  wanted);
  }
}

TEST(Indexing, ScatterNdReduces) {
  const std::vector<Tensor> inputs{counting({2, 3}), longs({2, 1}, {1, 1}), floats({2, 3}, {9, -1, 6, 0, 5, 7})};
  expect_floats(SingleOp("ScatterND", 18).text("reduction", "min").run(inputs)[0], {2, 3}, {1, 2, 3, 0, -1, 6});
  expect_floats(SingleOp("ScatterND", 18).text("reduction", "max").run(inputs)[0], {2, 3}, {1, 2, 3, 9, 5, 7});
}

TEST(Indexing, ScatterMaxOrdersUnsigned64) {
  const Tensor data = Tensor::of<uint64_t>({2}, std::vector<uint64_t>{1, 5});
  const Tensor updates = Tensor::of<uint64_t>({2}, std::vector<uint64_t>{UINT64_MAX, 2});
  const Tensor y = SingleOp("ScatterElements", 18).text("reduction", "max").run({data, longs({2}, {0, 1}), updates})[0];
  EXPECT_EQ(y.as<uint64_t>()[0], UINT64_MAX);
  EXPECT_EQ(y.as<uint64_t>()[1], 5u);
}

TEST(Indexing, TensorScatterWritesEachBatchAtItsPlace) {
  SingleOp op("TensorScatter", 24);
  op.number("axis", 1).text("mode", "circular");
  expect_floats(op.run({counting({2, 3, 1}), floats({2, 2, 1}, {-1, -2, -3, -4}), longs({2}, {1, 2})})[0], {2, 3, 1},
                {1, -1, -2, -4, 5, -3});
}

TEST(Indexing, OutsideFails) {
  EXPECT_THROW(SingleOp("Gather", 13).run({counting({3}), longs({1}, {3})}), Error);
  EXPECT_THROW(SingleOp("Gather", 13).run({counting({3}), longs({1}, {-4})}), Error);
  EXPECT_THROW(SingleOp("GatherND", 13).run({counting({2, 3}), longs({1, 2}, {0, 3})}), Error);
  EXPECT_THROW(SingleOp("GatherElements", 13).run({counting({3}), longs({1}, {-4})}), Error);
  EXPECT_THROW(SingleOp("ScatterND", 13).run({counting({2, 3}), longs({1, 2}, {2, 0}), floats({1}, {1})}), Error);
  EXPECT_THROW(SingleOp("ScatterElements", 13).run({counting({3}), longs({1}, {3}), floats({1}, {1})}), Error);
}

}  // namespace
}  // namespace kaon
