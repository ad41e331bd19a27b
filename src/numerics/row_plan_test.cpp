#include "numerics/row_plan.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "numerics/reference.h"

namespace kaon {

namespace {

std::vector<Tiling> tilings() {
  std::vector<Tiling> all;
  const std::vector<std::vector<int64_t>> shapes{{3, 4, 5, 2}, {2, 9, 6}, {1, 6, 1}, {7}, {}, {6, 8}, {4, 1, 3}};
  for (const auto& shape : shapes) {
    all.push_back(Tiling::per_tensor(shape));
    for (int64_t axis = 0; axis < std::ssize(shape); ++axis) {
      all.push_back(Tiling::per_channel(shape, axis));
      for (const int64_t group : {2, 3, 4}) all.push_back(Tiling::per_group(shape, axis, group));
    }
    if (shape.size() > 1) all.push_back(Tiling::per_block(shape, 2, 3));
    all.push_back({shape, std::vector<int64_t>(shape.size(), 2)});
  }
  return all;
}

TEST(RowPlan, FindsTheTileOfEveryElement) {
  for (const Tiling& tiling : tilings()) {
    SCOPED_TRACE(fmt::format("shape [{}] tile [{}]", fmt::join(tiling.shape, ","), fmt::join(tiling.tile, ",")));
    const RowPlan plan(tiling);
    ASSERT_EQ(plan.element_count(), tiling.element_count());
    ASSERT_EQ(plan.tile_count(), tiling.tile_count());
    std::map<int64_t, int64_t> run_of_tile;
    for (int64_t i = 0; i < tiling.element_count(); ++i) {
      const int64_t tile = plan.first_tile(i / plan.row_size()) + i % plan.row_size() / plan.tile();
      ASSERT_EQ(tile, reference::tile_of(tiling, i)) << i;
      const int64_t run = i / plan.independent_run();
      ASSERT_EQ(run_of_tile.emplace(tile, run).first->second, run) << "tile " << tile << " is in two runs";
    }
  }
}

TEST(RowPlan, MergesAxes) {
  const std::vector<int64_t> shape{8, 3, 5, 5};
  EXPECT_EQ(RowPlan(Tiling::per_tensor(shape)).rows(), 1);
  const RowPlan channels(Tiling::per_channel(shape, 0));
  EXPECT_EQ(channels.rows(), 1);
  EXPECT_EQ(channels.tile(), 75);
  EXPECT_EQ(RowPlan(Tiling::per_channel(shape, 1)).rows(), 8);
  EXPECT_EQ(RowPlan(Tiling::per_group(std::vector<int64_t>{16, 64}, 1, 32)).rows(), 1);
  EXPECT_EQ(RowPlan(Tiling::per_group(std::vector<int64_t>{16, 65}, 1, 32)).rows(), 16);
}

TEST(RowPlan, EmptyTensor) { EXPECT_EQ(RowPlan(Tiling::per_tensor(std::vector<int64_t>{3, 0, 2})).element_count(), 0); }

}  // namespace

}  // namespace kaon
