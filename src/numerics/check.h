#pragma once
#include <cstdint>
#include <span>

#include "numerics/format.h"
#include "numerics/quantize.h"
#include "numerics/tiling.h"

namespace kaon {

// What every entry point checks before it touches data. Each throws InvalidInput whose where() names the parameter.

/// No negative extent, and fewer than 2^63 elements.
void check_shape(std::span<const int64_t> shape);
/// `axis` in [-rank, rank), returned in [0, rank).
size_t check_axis(int64_t axis, std::span<const int64_t> shape);
void check_at_least_one(int64_t value, const char* name);
void check_positive_finite(float value, const char* name);
void check_size(int64_t size, int64_t expected, const char* name);

/// A tiling made by hand: one tile extent for each axis, all >= 1 (0 only where the axis is empty).
void check_tiling(const Tiling& tiling);

/// Integer or Float format; a finite scale > 0 for each tile; zero points absent, or one for each tile and in range.
void check_params(const Format& format, const QuantParams& params);

/// For fake_quantize and quantize: check_params, and `size` elements in and out.
void check_quantize(const Format& format, const QuantParams& params, int64_t in_size, int64_t out_size);

/// For fake_quantize_blocks and quantize_blocks: a Block format, the shape's element count, a finite `global_amax`
/// (negative = not given). Returns the blocks as a tiling.
Tiling check_blocks(const Format& format, std::span<const int64_t> shape, int64_t axis, int64_t size,
                    float global_amax);

/// A dequantizable BlockTensor: sizes that agree with its shape, a finite global scale > 0. Returns its blocks.
Tiling check_block_tensor(const BlockTensor& tensor, const Format& format);

}  // namespace kaon
