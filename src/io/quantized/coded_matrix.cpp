#include "io/quantized/coded_matrix.h"

#include <array>
#include <cmath>

namespace kaon {
namespace {

QuantizeOptions options_of(const TensorSpec& spec) {
  QuantizeOptions options;
  options.rounding = spec.rounding;
  options.scale_mode = spec.block_scale;
  return options;
}

CodedMatrix encode_blocks(FloatView values, int64_t rows, int64_t cols, const TensorSpec& spec, float global_amax) {
  const std::array<int64_t, 2> shape{rows, cols};
  BlockTensor blocks = quantize_blocks(values, format(spec.format), shape, 1, options_of(spec), global_amax);
  CodedMatrix matrix{rows, cols, spec, std::move(blocks.codes), {}, {}, std::move(blocks.scales), blocks.global_scale};
  return matrix;
}

}  // namespace

int64_t CodedMatrix::groups() const {
  const int64_t count = block_scales.empty() ? std::ssize(scale) : std::ssize(block_scales);
  return count <= rows ? 1 : count / rows;
}

MatrixRange range_of(FloatView values, int64_t rows, int64_t cols, const TensorSpec& spec) {
  MatrixRange range;
  const std::array<int64_t, 2> shape{rows, cols};
  if (format(spec.format).global_scale) {
    const Range all = tile_ranges(values, Tiling::per_tensor(shape)).front();
    range.global_amax = std::max(std::abs(all.min), std::abs(all.max));
  } else if (!has_own_scales(spec) && spec.granularity == Granularity::PerTensor) {
    range.params = choose_params(values, shape, spec);
  }
  return range;
}

CodedMatrix encode_rows(FloatView values, int64_t rows, int64_t cols, const TensorSpec& spec,
                        const MatrixRange& range) {
  if (has_own_scales(spec)) return encode_blocks(values, rows, cols, spec, range.global_amax);
  const std::array<int64_t, 2> shape{rows, cols};
  QuantParams params = range.params;
  if (params.scale.empty()) {
    params = choose_params(values, shape, spec);
  } else {
    params.tiling = Tiling::per_tensor(shape);
  }
  return encode_matrix(values, rows, cols, spec, params);
}

CodedMatrix encode_matrix(FloatView values, int64_t rows, int64_t cols, const TensorSpec& spec,
                          const QuantParams& params) {
  if (has_own_scales(spec)) return encode_blocks(values, rows, cols, spec, -1);
  CodedMatrix matrix{
      rows, cols, spec, std::vector<std::byte>(static_cast<size_t>(rows * cols)), params.scale, params.zero_point,
      {},   1};
  quantize(values, matrix.codes, format(spec.format), params, options_of(spec));
  return matrix;
}

std::vector<float> decode_matrix(const CodedMatrix& matrix) {
  const std::array<int64_t, 2> shape{matrix.rows, matrix.cols};
  std::vector<float> values(matrix.codes.size());
  const Format& kind = format(matrix.spec.format);
  if (has_own_scales(matrix.spec)) {
    const BlockTensor blocks{{matrix.rows, matrix.cols}, 1, matrix.codes, matrix.block_scales, matrix.global_scale};
    dequantize_blocks(blocks, values, kind);
    return values;
  }
  const QuantParams params{tiling_of(matrix.spec, shape), matrix.scale, matrix.zero_point};
  dequantize(matrix.codes, values, kind, params);
  return values;
}

}  // namespace kaon
