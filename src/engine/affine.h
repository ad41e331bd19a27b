#pragma once
#include "engine/op.h"

namespace kaon {

// Affine codes: code q stands for scale * (q - zero point). What the quantized operators share.

/// A scale or zero point ready to broadcast against a tensor of `shape`: one number, or one for each index of `axis`.
at::Tensor along_axis(const at::Tensor& parameter, at::IntArrayRef shape, int64_t axis);
/// The same with one number for every `block` neighbours on `axis`; `parameter` has the rank of `shape`.
at::Tensor along_blocks(const at::Tensor& parameter, at::IntArrayRef shape, int64_t axis, int64_t block);

/// Any number type as float32: scales may be half floats or powers of two.
at::Tensor to_float(const Value& value);

/// q - zero point in float64, where sums of products of 8- and 16-bit codes are exact. `zero` may be undefined.
at::Tensor centred(const Value& codes, const at::Tensor& zero);
/// The zero point as a float64 tensor, undefined where the input is left out.
at::Tensor zero_point(const Call& call, size_t input);

/// Codes of numbers that are already divided by their scale: integers round half to even, get the zero point and
/// saturate; the 8- and 4-bit floats round as Cast does. `zero` may be undefined.
Value to_codes(const at::Tensor& scaled, const at::Tensor& zero, DType type, bool saturate = true);

/// An exact integer sum as int32 holds it.
at::Tensor wrapped_sum(const at::Tensor& sum);

struct DynamicCodes {
  Value codes;       ///< uint8
  at::Tensor scale;  ///< float32 []
  at::Tensor zero;   ///< float32 []
};
/// uint8 codes over the range of `x`, widened to include 0.
DynamicCodes quantize_dynamic(const at::Tensor& x);

}  // namespace kaon
