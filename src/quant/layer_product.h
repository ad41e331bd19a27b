#pragma once
#include <string>
#include <vector>

#include "graph/layer.h"

namespace kaon {

/// A layer as products of matrices: each of `groups` multiplies its own [rows, cols] of the weight with columns of what
/// the layer reads (the patches that a convolution's window sees).
struct LayerProduct {
  int64_t groups = 1;
  int64_t rows = 0;         ///< outputs of a group
  int64_t cols = 0;         ///< inputs of a group, times the elements of the kernel
  bool cols_first = false;  ///< the weight is stored [cols, rows]
  /// Convolutions: height and width, a single axis counts as the width.
  bool convolution = false;
  int64_t kernel[2] = {1, 1};
  int64_t strides[2] = {1, 1};
  int64_t dilations[2] = {1, 1};
  int64_t pads[4] = {0, 0, 0, 0};  ///< begins, then ends
  std::string auto_pad;            ///< "SAME_UPPER", "SAME_LOWER" or ""

  /// Why the layer is none, in words; nothing else is set then.
  std::string refused;

  bool operator==(const LayerProduct&) const = default;
  int64_t all_rows() const { return groups * rows; }
  /// Where element (row, col) lies in the weight; rows of all groups are counted on.
  int64_t offset(int64_t row, int64_t col) const { return cols_first ? col * rows + row : row * cols + col; }
};

/// More columns than this are refused: their products would not fit beside the others.
inline constexpr int64_t kMostColumns = 4608;

LayerProduct product_of(const Graph& graph, const Layer& layer);

}  // namespace kaon
