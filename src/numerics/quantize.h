#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "numerics/float_view.h"
#include "numerics/format.h"
#include "numerics/tiling.h"

namespace kaon {

enum class Rounding { HalfEven, HalfAway, Floor, Ceil, Stochastic };

/// How the exponent of an E8M0 block scale follows from the block's absmax, where emax is the exponent of the element's
/// largest value; it is then bounded to ±127.
enum class BlockScaleMode {
  Even,   ///< as Floor, after half a unit of the element's last mantissa bit was added to amax
  Floor,  ///< ⌊log2 amax⌋ - emax, the rule of OCP MX: the largest elements may saturate
  Ceil,   ///< ⌈log2 amax⌉ - emax
};

struct QuantizeOptions {
  Rounding rounding = Rounding::HalfEven;
  /// Float formats: false gives Inf or NaN past the maximum, as an ONNX Cast with saturate=0 (fp6 and fp4, which have
  /// neither, saturate all the same). Integer and Block formats always saturate.
  bool saturate = true;
  uint64_t seed = 0;  ///< Stochastic: the result depends on the seed and the element's index alone
  BlockScaleMode scale_mode = BlockScaleMode::Even;  ///< Block formats with an E8M0 scale; bfp16 has its own rule
};

/// The parameters of an Integer or Float format, one for each tile.
struct QuantParams {
  Tiling tiling;
  std::vector<float> scale;
  std::vector<int32_t> zero_point;  ///< empty = all zero; Float formats take none
};

// Integer: code = saturate(round(x / scale) + zero_point), value = float(code - zero_point) · scale.
// Float:   code = encode(x / scale),                        value = decode(code) · scale.
// All in float32, with a real division: bit for bit what ONNX's QuantizeLinear and DequantizeLinear give.
// Inf saturates (or stays Inf, or becomes NaN: options.saturate). NaN stays NaN where the format has one; otherwise it
// becomes value 0: the zero point of an integer, +0 of fp6 and fp4. -0 is kept but by integers and the fnuz formats.
// Every function here throws InvalidInput, naming the parameter, before it writes anything.

/// quantize, then dequantize, in one pass. `out` may be `in` itself. Integer and Float formats.
void fake_quantize(FloatView in, std::span<float> out, const Format& format, const QuantParams& params,
                   const QuantizeOptions& options = {});

/// One code for each element, unpacked: format.code_bytes() bytes each, little endian; sub-byte codes in the low bits
/// (signed integers sign-extended to the byte).
void quantize(FloatView in, std::span<std::byte> codes, const Format& format, const QuantParams& params,
              const QuantizeOptions& options = {});
void dequantize(std::span<const std::byte> codes, std::span<float> out, const Format& format,
                const QuantParams& params);

/// Dense sub-byte storage: element i at bit i * bits, least significant first (ONNX's order for 4 and 2 bits).
int64_t packed_bytes(const Format& format, int64_t count);
void pack(std::span<const std::byte> codes, std::span<std::byte> packed, const Format& format, int64_t count);
void unpack(std::span<const std::byte> packed, std::span<std::byte> codes, const Format& format, int64_t count);

// Block formats: each block's scale follows from the absmax of its finite elements, so that one NaN or Inf does not
// spoil its neighbours; elements are then coded as above, x · global_scale / scale, always saturating. A value near
// FLT_MAX may round up to Inf when the scale modes Even and Ceil are used. Where nvfp4's block scale rounds to 0, its
// elements are 0.

/// A tensor in a Block format. Blocks run along `axis`; the last one of a line may be short.
struct BlockTensor {
  std::vector<int64_t> shape;
  int64_t axis = 0;
  std::vector<std::byte> codes;   ///< unpacked codes of format.element, in the tensor's order
  std::vector<std::byte> scales;  ///< E8M0 or E4M3 codes; grid of Tiling::per_group(shape, axis, format.block)
  float global_scale = 1;         ///< nvfp4: 448·6/amax; value = element · scale / global_scale
};

/// `global_amax` is nvfp4's tensor-wide absmax where it is known beforehand; negative = taken from `in`.
void fake_quantize_blocks(FloatView in, std::span<float> out, const Format& format, std::span<const int64_t> shape,
                          int64_t axis, const QuantizeOptions& options = {}, float global_amax = -1);
BlockTensor quantize_blocks(FloatView in, const Format& format, std::span<const int64_t> shape, int64_t axis,
                            const QuantizeOptions& options = {}, float global_amax = -1);
void dequantize_blocks(const BlockTensor& tensor, std::span<float> out, const Format& format);

}  // namespace kaon
