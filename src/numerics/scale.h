#pragma once
#include <cstdint>

#include "numerics/format.h"
#include "numerics/quantize.h"

namespace kaon {

enum class Symmetry {
  Symmetric,   ///< scale amax/⌊n/2⌋ (amax/127 for 8 bits), every code in use
  Asymmetric,  ///< range widened to hold 0; zero is exactly representable
};

struct Range {
  float min = 0;
  float max = 0;
};

struct ScaleZero {
  float scale = 1;
  int32_t zero_point = 0;
};

/// The scale and zero point that cover `range`, in float32 arithmetic. For b bits:
///   Integer, Symmetric: scale = amax / (2^(b-1) - 1); zero point 0, or 2^(b-1) for an unsigned format.
///   Integer, Asymmetric: scale = (max - min) / (2^b - 1), zero point = saturate(round_half_even(low - min / scale)),
///   low the lowest code; for uint8 that is ONNX's DynamicQuantizeLinear to the bit.
///   Float: scale = amax / format.max(), zero point 0, whatever the symmetry. Block formats throw InvalidInput.
/// Where `type` is not Float32, the scale is then rounded to it, before the zero point is chosen.
/// It is defined for every range:
///   a NaN bound counts as 0, an infinite one as ±FLT_MAX; min > max are exchanged;
///   all zero: scale 1, and the zero point 0 (symmetric unsigned: 2^(b-1) as ever);
///   one value c: as {min(c, 0), max(c, 0)};
///   a scale below 2^-126 (subnormal numbers) becomes 2^-126: subnormal scales are inexact, and 0 on some machines;
///   max - min past FLT_MAX: the scale is computed in double, and is finite.
ScaleZero choose_scale(Range range, const Format& format, Symmetry symmetry, ScaleType type = ScaleType::Float32);

/// `scale` as `type` stores it. Float16, BFloat16 and E4M3 round half to even, PowerOfTwo and E8M0 up, so that nothing
/// clips. What a type cannot hold becomes its smallest positive or largest finite value: 2^-24 and 65504 for Float16,
/// 2^-133 and 3.39e38 for BFloat16, 2^-9 and 448 for E4M3, 2^-149 and 2^127 for PowerOfTwo, 2^-127 and 2^127 for E8M0.
/// Throws InvalidInput unless `scale` is finite and above 0.
float round_scale(float scale, ScaleType type);

/// Minimum and maximum of every tile; NaN elements are skipped, an all-NaN tile gives {0, 0}.
std::vector<Range> tile_ranges(FloatView in, const Tiling& tiling);

/// Dynamic quantization: tile_ranges, then choose_scale for each.
QuantParams choose_params(FloatView in, const Tiling& tiling, const Format& format, Symmetry symmetry,
                          ScaleType type = ScaleType::Float32);

}  // namespace kaon
