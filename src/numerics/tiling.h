#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace kaon {

/// Which elements of a tensor share one scale. A tensor of `shape` is cut into tiles of `tile` along each axis (the
/// last tile of an axis may be short); parameters are stored row-major over the grid of tiles, which is the layout of
/// ONNX: per channel [D_axis], groups along an axis shape with ceil(D/g) there. The factories accept negative axes,
/// counted from the end, and throw InvalidInput naming the parameter that is wrong.
struct Tiling {
  std::vector<int64_t> shape;
  std::vector<int64_t> tile;  ///< each >= 1; 0 stands for one tile on an axis of length 0

  static Tiling per_tensor(std::span<const int64_t> shape);
  static Tiling per_channel(std::span<const int64_t> shape, int64_t axis);
  static Tiling per_group(std::span<const int64_t> shape, int64_t axis, int64_t group);
  /// Tiles of rows × columns over the last two axes.
  static Tiling per_block(std::span<const int64_t> shape, int64_t rows, int64_t columns);
  /// One tile for each row of the last axis.
  static Tiling per_token(std::span<const int64_t> shape);

  int64_t element_count() const;
  /// Number of tiles = number of scales.
  int64_t tile_count() const;
  /// Tiles along each axis; their product is tile_count().
  std::vector<int64_t> grid() const;
};

}  // namespace kaon
