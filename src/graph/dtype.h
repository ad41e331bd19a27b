#pragma once
#include <cstdint>
#include <string_view>

namespace kaon {

/// Element types, with the numbers of ONNX's TensorProto.DataType.
enum class DType : int32_t {
  Undefined = 0,
  Float32 = 1,
  UInt8 = 2,
  Int8 = 3,
  UInt16 = 4,
  Int16 = 5,
  Int32 = 6,
  Int64 = 7,
  String = 8,
  Bool = 9,
  Float16 = 10,
  Float64 = 11,
  UInt32 = 12,
  UInt64 = 13,
  Complex64 = 14,
  Complex128 = 15,
  BFloat16 = 16,
  Float8E4M3FN = 17,
  Float8E4M3FNUZ = 18,
  Float8E5M2 = 19,
  Float8E5M2FNUZ = 20,
  UInt4 = 21,
  Int4 = 22,
  Float4E2M1 = 23,
  Float8E8M0 = 24,
  UInt2 = 25,
  Int2 = 26,
};

/// Bits of one element as stored; 0 for String and for numbers that are no known type.
int bits_of(DType type);
/// "float32", "int4", "float8e4m3fn" …; "unknown" for numbers that are no known type.
std::string_view name_of(DType type);
bool is_known(DType type);

}  // namespace kaon
