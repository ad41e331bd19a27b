#include "numerics/row_plan.h"

#include <algorithm>

namespace kaon {

RowPlan::RowPlan(const Tiling& tiling) {
  std::vector<Axis> axes;
  for (size_t i = 0; i < tiling.shape.size(); ++i) {
    const int64_t size = tiling.shape[i];
    const int64_t tile = std::clamp<int64_t>(tiling.tile[i], 1, std::max<int64_t>(size, 1));
    if (size == 1) continue;
    const bool one_tile = tile == size;
    if (!axes.empty() && one_tile) {
      axes.back().size *= size;
      axes.back().tile *= size;
    } else if (!axes.empty() && axes.back().tile == 1 && size % tile == 0) {
      axes.back().size *= size;
      axes.back().tile = tile;
    } else {
      axes.push_back({size, tile, 1, 1});
    }
  }
  if (!axes.empty()) {
    row_size_ = axes.back().size;
    tile_ = axes.back().tile;
    axes.pop_back();
  }
  tile_count_ = tiles_per_row();
  for (size_t i = axes.size(); i-- > 0;) {
    axes[i].rows = rows_;
    axes[i].stride = tile_count_;
    rows_ *= axes[i].size;
    tile_count_ *= (axes[i].size + axes[i].tile - 1) / axes[i].tile;
  }
  independent_run_ = axes.empty() ? tile_ : axes[0].tile * axes[0].rows * row_size_;
  outer_ = std::move(axes);
}

int64_t RowPlan::first_tile(int64_t row) const {
  int64_t first = 0;
  for (const Axis& axis : outer_) first += row / axis.rows % axis.size / axis.tile * axis.stride;
  return first;
}

}  // namespace kaon
