#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "numerics/format.h"
#include "numerics/quantize.h"

/// The scalar oracle: every codec written for the eye, one element at a time, in double where that is exact. Fast
/// kernels are tested against it bit for bit; nothing else calls it. It does not check its arguments.
namespace kaon::reference {

/// The value of a code at scale 1 and zero point 0; NaN and Inf where the format has them. Only the low format.bits
/// bits count. Integer and Float formats.
double decode(const Format& format, uint32_t code);

/// The code of `value` at scale 1 and zero point 0: rounded as the options say, then limited.
///   Integer: saturates, Inf too; NaN gives 0. Signed codes come sign-extended to 32 bits.
///   Float: overflow is judged after rounding on a grid without end. Saturating, it gives ±max; otherwise Inf where
///   the format has it, else NaN, else ±max. Inf itself overflows. NaN gives the format's NaN (quiet, sign kept where
///   the format has two), or +0 where there is none (fp6, fp4). -0 stays -0 but in formats without it (fnuz).
/// Floor and Ceil round the signed value; Stochastic moves the magnitude up when its fraction is above
/// random_unit(options.seed, index).
uint32_t encode(const Format& format, float value, const QuantizeOptions& options = {}, int64_t index = 0);

/// Integer: saturate(round(x / scale) + zero_point), the division in float32; NaN gives the zero point.
/// Float: encode(x / scale).
uint32_t quantize_one(const Format& format, float x, float scale, int32_t zero_point, const QuantizeOptions& options,
                      int64_t index);
/// Integer: float32(code - zero_point) * scale. Float: float32(decode(code)) * scale.
float dequantize_one(const Format& format, uint32_t code, float scale, int32_t zero_point);

/// The tile that holds element `index` of the tensor.
int64_t tile_of(const Tiling& tiling, int64_t index);

/// Codes of format.code_bytes() bytes each.
void store_code(std::span<std::byte> codes, const Format& format, int64_t index, uint32_t code);
uint32_t load_code(std::span<const std::byte> codes, const Format& format, int64_t index);

void fake_quantize(FloatView in, std::span<float> out, const Format& format, const QuantParams& params,
                   const QuantizeOptions& options = {});
void quantize(FloatView in, std::span<std::byte> codes, const Format& format, const QuantParams& params,
              const QuantizeOptions& options = {});
void dequantize(std::span<const std::byte> codes, std::span<float> out, const Format& format,
                const QuantParams& params);

void fake_quantize_blocks(FloatView in, std::span<float> out, const Format& format, std::span<const int64_t> shape,
                          int64_t axis, const QuantizeOptions& options = {}, float global_amax = -1);
BlockTensor quantize_blocks(FloatView in, const Format& format, std::span<const int64_t> shape, int64_t axis,
                            const QuantizeOptions& options = {}, float global_amax = -1);
void dequantize_blocks(const BlockTensor& tensor, std::span<float> out, const Format& format);

}  // namespace kaon::reference
