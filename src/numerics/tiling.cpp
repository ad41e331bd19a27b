#include "numerics/tiling.h"

#include "numerics/check.h"

namespace kaon {

Tiling Tiling::per_tensor(std::span<const int64_t> shape) {
  check_shape(shape);
  return {{shape.begin(), shape.end()}, {shape.begin(), shape.end()}};
}

Tiling Tiling::per_channel(std::span<const int64_t> shape, int64_t axis) {
  Tiling tiling = per_tensor(shape);
  tiling.tile[check_axis(axis, shape)] = 1;
  return tiling;
}

Tiling Tiling::per_group(std::span<const int64_t> shape, int64_t axis, int64_t group) {
  Tiling tiling = per_tensor(shape);
  const size_t along = check_axis(axis, shape);
  check_at_least_one(group, "group");
  for (size_t i = 0; i < shape.size(); ++i) tiling.tile[i] = i == along ? group : 1;
  return tiling;
}

Tiling Tiling::per_block(std::span<const int64_t> shape, int64_t rows, int64_t columns) {
  Tiling tiling = per_tensor(shape);
  check_at_least_one(rows, "rows");
  check_at_least_one(columns, "columns");
  const size_t rank = shape.size();
  if (rank < 2) fail(ErrorCode::InvalidInput, "shape", "blocks of rows and columns need 2 axes or more, got {}", rank);
  for (size_t i = 0; i < rank; ++i) tiling.tile[i] = i + 2 == rank ? rows : i + 1 == rank ? columns : 1;
  return tiling;
}

Tiling Tiling::per_token(std::span<const int64_t> shape) {
  Tiling tiling = per_tensor(shape);
  if (shape.empty()) fail(ErrorCode::InvalidInput, "shape", "one scale a token needs 1 axis or more, got a scalar");
  for (size_t i = 0; i + 1 < shape.size(); ++i) tiling.tile[i] = 1;
  return tiling;
}

int64_t Tiling::element_count() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

int64_t Tiling::tile_count() const {
  int64_t count = 1;
  for (const int64_t tiles : grid()) count *= tiles;
  return count;
}

std::vector<int64_t> Tiling::grid() const {
  std::vector<int64_t> grid(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) {
    grid[i] = tile[i] == 0 ? 1 : shape[i] / tile[i] + (shape[i] % tile[i] != 0);
  }
  return grid;
}

}  // namespace kaon
