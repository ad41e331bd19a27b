#include "numerics/tiling.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "numerics/bad_parameter_test.h"
#include "numerics/check.h"
#include "numerics/reference.h"

namespace kaon {
namespace {

using Sizes = std::vector<int64_t>;

TEST(Tiling, Factories) {
  const Sizes shape = {4, 6, 5};
  EXPECT_EQ(Tiling::per_tensor(shape).tile_count(), 1);
  EXPECT_EQ(Tiling::per_channel(shape, 1).grid(), (Sizes{1, 6, 1}));
  EXPECT_EQ(Tiling::per_channel(shape, -1).grid(), (Sizes{1, 1, 5}));
  EXPECT_EQ(Tiling::per_group(shape, 1, 4).grid(), (Sizes{4, 2, 5}));
  EXPECT_EQ(Tiling::per_group(shape, -3, 100).grid(), (Sizes{1, 6, 5}));
  EXPECT_EQ(Tiling::per_block(shape, 4, 2).grid(), (Sizes{4, 2, 3}));
  EXPECT_EQ(Tiling::per_token(shape).grid(), (Sizes{4, 6, 1}));
  EXPECT_EQ(Tiling::per_token(shape).element_count(), 120);
}

TEST(Tiling, ScalarsAndEmptyTensors) {
  EXPECT_EQ(Tiling::per_tensor(Sizes{}).element_count(), 1);
  EXPECT_EQ(Tiling::per_tensor(Sizes{}).tile_count(), 1);
  const Sizes empty = {0, 3};
  EXPECT_EQ(Tiling::per_tensor(empty).tile_count(), 1) << "a per-tensor scale is one, whatever the size";
  EXPECT_EQ(Tiling::per_channel(empty, 0).tile_count(), 0);
  EXPECT_EQ(Tiling::per_channel(empty, 1).tile_count(), 3);
  EXPECT_EQ(Tiling::per_tensor(empty).element_count(), 0);
}

TEST(Tiling, ElementsFallIntoTheirTiles) {
  const Tiling groups = Tiling::per_group(Sizes{2, 5}, 1, 2);
  const Sizes expected = {0, 0, 1, 1, 2, 3, 3, 4, 4, 5};
  for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(reference::tile_of(groups, i), expected[i]) << i;
  const Tiling down = Tiling::per_group(Sizes{3, 2}, 0, 2);
  const Sizes expected_down = {0, 1, 0, 1, 2, 3};
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(reference::tile_of(down, i), expected_down[i]) << i;
  const Tiling blocks = Tiling::per_block(Sizes{3, 3}, 2, 2);
  const Sizes expected_blocks = {0, 0, 1, 0, 0, 1, 2, 2, 3};
  for (int64_t i = 0; i < 9; ++i) EXPECT_EQ(reference::tile_of(blocks, i), expected_blocks[i]) << i;
}

TEST(Tiling, BadParametersAreNamed) {
  const Sizes shape = {4, 6};
  EXPECT_EQ(parameter_at_fault([&] { Tiling::per_channel(shape, 2); }), "axis");
  EXPECT_EQ(parameter_at_fault([&] { Tiling::per_channel(shape, -3); }), "axis");
  EXPECT_EQ(parameter_at_fault([&] { Tiling::per_channel(Sizes{}, 0); }), "axis");
  EXPECT_EQ(parameter_at_fault([&] { Tiling::per_group(shape, 0, 0); }), "group");
  EXPECT_EQ(parameter_at_fault([&] { Tiling::per_group(shape, 0, -4); }), "group");
  EXPECT_EQ(parameter_at_fault([&] { Tiling::per_group(shape, 7, 4); }), "axis");
  EXPECT_EQ(parameter_at_fault([&] { Tiling::per_block(shape, 0, 1); }), "rows");
  EXPECT_EQ(parameter_at_fault([&] { Tiling::per_block(shape, 1, 0); }), "columns");
  EXPECT_EQ(parameter_at_fault([&] { Tiling::per_block(Sizes{4}, 1, 1); }), "shape");
  EXPECT_EQ(parameter_at_fault([&] { Tiling::per_token(Sizes{}); }), "shape");
  EXPECT_EQ(parameter_at_fault([&] { Tiling::per_tensor(Sizes{4, -1}); }), "shape");
  EXPECT_EQ(parameter_at_fault([&] { Tiling::per_tensor(Sizes{int64_t{1} << 40, int64_t{1} << 40}); }), "shape");
  EXPECT_EQ(parameter_at_fault([&] { check_tiling({shape, {4}}); }), "tile");
  EXPECT_EQ(parameter_at_fault([&] { check_tiling({shape, {4, 0}}); }), "tile");
}

}  // namespace
}  // namespace kaon
