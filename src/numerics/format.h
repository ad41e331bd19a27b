#pragma once
#include <cstdint>
#include <string>

#include "base/registry.h"

namespace kaon {

enum class FormatKind {
  Integer,  ///< two's complement or unsigned codes; value = (code - zero_point) * scale
  Float,    ///< sign, exponent, mantissa; value = decode(code) * scale
  Block,    ///< elements of another format that share a scale stored with each block
};

/// What the codes of a Float format say beyond finite numbers.
enum class FloatSpecials {
  Ieee,        ///< the highest exponent holds Inf and NaN (float16, bfloat16, fp8_e5m2)
  NanOnly,     ///< S.11…1 is NaN, no Inf (fp8_e4m3)
  NegZeroNan,  ///< the code of -0 is the only NaN; no -0, no Inf (the fnuz formats)
  Finite,      ///< every code is a number (fp6, fp4)
};

/// How a scale is stored; the scales of blocks are E8M0 or E4M3.
enum class ScaleType {
  Float32,
  Float16,
  BFloat16,
  PowerOfTwo,  ///< a float32 without mantissa
  E8M0,        ///< a byte: 2^(byte - 127), 0xff is NaN
  E4M3,        ///< a byte of fp8_e4m3
};

/// One row describes a number format completely: kernels ask it and never switch on a name.
struct Format {
  std::string name = {};
  FormatKind kind = FormatKind::Integer;
  int bits = 0;  ///< of one element, without its share of a block's scale

  bool is_signed = true;     ///< Integer
  bool skip_lowest = false;  ///< Integer, signed: the lowest code is never written; see without_lowest()

  int exponent_bits = 0;  ///< Float
  int mantissa_bits = 0;
  int bias = 0;
  FloatSpecials specials = FloatSpecials::Finite;

  std::string element = {};  ///< Block: the element's format; "int8" for mxint8 and bfp16
  int element_exponent = 0;  ///< an element's value is decode(code) · 2^element_exponent (-6 for mxint8)
  int block = 0;
  ScaleType scale = ScaleType::E8M0;
  bool global_scale = false;       ///< nvfp4: a second, per-tensor float32 scale
  bool widen_on_overflow = false;  ///< bfp16: takes the Floor scale and doubles a block's scale instead of saturating

  int onnx_type = 0;  ///< TensorProto.DataType, 0 where ONNX has none

  int64_t integer_min() const;  ///< Integer: the lowest code
  int64_t integer_max() const;
  double max() const;       ///< largest finite value at scale 1
  double min() const;       ///< lowest finite value at scale 1
  double smallest() const;  ///< smallest positive value at scale 1
  /// Bytes of one unpacked code: 1, 2 or 4.
  int code_bytes() const;
};

/// Every format under formats/: integers, floats, blocks, then by width and name. Built once.
const Registry<Format>& formats();

/// `format`, if it is a signed integer, with a symmetric range: [-127, 127] for int8. What strict symmetric
/// quantization hands to the kernels.
Format without_lowest(Format format);

/// formats().get(name): throws InvalidInput with the nearest known name.
const Format& format(const std::string& name);

}  // namespace kaon
