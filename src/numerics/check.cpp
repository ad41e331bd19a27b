#include "numerics/check.h"

#include <cmath>

namespace kaon {

namespace {

void check_block_kind(const Format& format) {
  if (format.kind == FormatKind::Block) return;
  fail(ErrorCode::InvalidInput, "format", "{} is no block format; use quantize and QuantParams", format.name);
}

}  // namespace

void check_shape(std::span<const int64_t> shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) {
    if (extent < 0) fail(ErrorCode::InvalidInput, "shape", "[{}] has a negative extent", fmt::join(shape, ", "));
    if (__builtin_mul_overflow(count, extent, &count)) {
      fail(ErrorCode::InvalidInput, "shape", "[{}] has 2^63 elements or more", fmt::join(shape, ", "));
    }
  }
}

size_t check_axis(int64_t axis, std::span<const int64_t> shape) {
  const int64_t rank = std::ssize(shape);
  if (axis < -rank || axis >= rank) {
    fail(ErrorCode::InvalidInput, "axis", "axis {} of a tensor with {} axes; accepted: [{}, {})", axis, rank, -rank,
         rank);
  }
  return static_cast<size_t>(axis < 0 ? axis + rank : axis);
}

void check_at_least_one(int64_t value, const char* name) {
  if (value < 1) fail(ErrorCode::InvalidInput, name, "{} is {}; it must be 1 or more", name, value);
}

void check_positive_finite(float value, const char* name) {
  if (std::isfinite(value) && value > 0) return;
  fail(ErrorCode::InvalidInput, name, "{} is {}; it must be finite and above 0", name, value);
}

void check_size(int64_t size, int64_t expected, const char* name) {
  if (size != expected) fail(ErrorCode::InvalidInput, name, "{} has size {}; expected {}", name, size, expected);
}

void check_tiling(const Tiling& tiling) {
  check_shape(tiling.shape);
  check_size(std::ssize(tiling.tile), std::ssize(tiling.shape), "tile");
  for (size_t i = 0; i < tiling.tile.size(); ++i) {
    if (tiling.tile[i] < (tiling.shape[i] == 0 ? 0 : 1)) {
      fail(ErrorCode::InvalidInput, "tile", "tile[{}] is {}; it must be 1 or more", i, tiling.tile[i]);
    }
  }
}

void check_params(const Format& format, const QuantParams& params) {
  if (format.kind == FormatKind::Block) {
    fail(ErrorCode::InvalidInput, "format", "{} is a block format; use quantize_blocks or fake_quantize_blocks",
         format.name);
  }
  check_tiling(params.tiling);
  const int64_t tiles = params.tiling.tile_count();
  check_size(std::ssize(params.scale), tiles, "scale");
  for (int64_t i = 0; i < tiles; ++i) {
    if (std::isfinite(params.scale[i]) && params.scale[i] > 0) continue;
    fail(ErrorCode::InvalidInput, "scale", "scale[{}] is {}; it must be finite and above 0", i, params.scale[i]);
  }
  if (params.zero_point.empty()) return;
  if (format.kind != FormatKind::Integer) {
    fail(ErrorCode::InvalidInput, "zero_point", "{} takes no zero point", format.name);
  }
  check_size(std::ssize(params.zero_point), tiles, "zero_point");
  for (int64_t i = 0; i < tiles; ++i) {
    if (params.zero_point[i] < format.integer_min() || params.zero_point[i] > format.integer_max()) {
      fail(ErrorCode::InvalidInput, "zero_point", "zero_point[{}] is {}; {} holds [{}, {}]", i, params.zero_point[i],
           format.name, format.integer_min(), format.integer_max());
    }
  }
}

void check_quantize(const Format& format, const QuantParams& params, int64_t in_size, int64_t out_size) {
  check_params(format, params);
  check_size(in_size, params.tiling.element_count(), "in");
  check_size(out_size, in_size, "out");
}

Tiling check_blocks(const Format& format, std::span<const int64_t> shape, int64_t axis, int64_t size,
                    float global_amax) {
  check_block_kind(format);
  Tiling blocks = Tiling::per_group(shape, axis, format.block);
  check_size(size, blocks.element_count(), "in");
  if (!std::isfinite(global_amax)) {
    fail(ErrorCode::InvalidInput, "global_amax", "global_amax is {}; it must be finite", global_amax);
  }
  return blocks;
}

Tiling check_block_tensor(const BlockTensor& tensor, const Format& format) {
  check_block_kind(format);
  Tiling blocks = Tiling::per_group(tensor.shape, tensor.axis, format.block);
  check_size(std::ssize(tensor.codes), blocks.element_count() * format.code_bytes(), "codes");
  check_size(std::ssize(tensor.scales), blocks.tile_count(), "scales");
  check_positive_finite(tensor.global_scale, "global_scale");
  return blocks;
}

}  // namespace kaon
