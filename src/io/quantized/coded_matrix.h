#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "numerics/tensor_spec.h"

namespace kaon {

/// A matrix [rows, cols] in the codes of a format of up to 8 bits, which the layouts of checkpoints store each in its
/// own way. Groups and blocks run along the columns.
struct CodedMatrix {
  int64_t rows = 0;
  int64_t cols = 0;
  TensorSpec spec;
  std::vector<std::byte> codes;         ///< one byte each, as quantize() gives them
  std::vector<float> scale;             ///< [1], [rows] or [rows, groups]; none of Block formats
  std::vector<int32_t> zero_point;      ///< like `scale`, or empty: all zero
  std::vector<std::byte> block_scales;  ///< [rows, blocks], of Block formats
  float global_scale = 1;

  /// Scales of a row, or 1 where the whole matrix has one.
  int64_t groups() const;
};

/// What the whole matrix must be looked at for before some of its rows can be coded; empty where there is no such
/// thing.
struct MatrixRange {
  QuantParams params;      ///< of specs with one scale
  float global_amax = -1;  ///< of formats with a global scale
};
MatrixRange range_of(FloatView values, int64_t rows, int64_t cols, const TensorSpec& spec);

/// Codes some rows; `range` is that of all of them.
CodedMatrix encode_rows(FloatView values, int64_t rows, int64_t cols, const TensorSpec& spec, const MatrixRange& range);
/// The same with parameters that are known.
CodedMatrix encode_matrix(FloatView values, int64_t rows, int64_t cols, const TensorSpec& spec,
                          const QuantParams& params);

std::vector<float> decode_matrix(const CodedMatrix& matrix);

}  // namespace kaon
