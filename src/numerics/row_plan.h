#pragma once
#include <cstdint>
#include <vector>

#include "numerics/tiling.h"

namespace kaon {

/// A tiling as the kernels walk it: `rows` contiguous rows of `row_size` elements, each cut into tiles of `tile`
/// elements (the last may be short) whose parameters are consecutive from first_tile(row). Axes are merged as far as
/// the layout allows: per tensor, per channel and whole groups of the last axis are a single row.
class RowPlan {
 public:
  explicit RowPlan(const Tiling& tiling);

  int64_t rows() const { return rows_; }
  int64_t row_size() const { return row_size_; }
  int64_t tile() const { return tile_; }
  int64_t tiles_per_row() const { return (row_size_ + tile_ - 1) / tile_; }
  int64_t element_count() const { return rows_ * row_size_; }
  int64_t tile_count() const { return tile_count_; }
  int64_t first_tile(int64_t row) const;

  /// Elements counted from 0 in runs of this many belong to disjoint sets of tiles.
  int64_t independent_run() const { return independent_run_; }

 private:
  struct Axis {
    int64_t size;
    int64_t tile;
    int64_t rows;    // rows in one step along this axis
    int64_t stride;  // tiles in one step of the grid along this axis
  };
  std::vector<Axis> outer_;
  int64_t rows_ = 1;
  int64_t row_size_ = 1;
  int64_t tile_ = 1;
  int64_t tile_count_ = 1;
  int64_t independent_run_ = 1;
};

}  // namespace kaon
