#pragma once
#include "engine/aten.h"
#include "graph/tensor.h"

namespace kaon {

/// A value in a run: an ATen tensor and the ONNX type it stands for. Types ATen lacks travel in a carrier:
/// uint16 in int32, uint32 and uint64 in int64, 4- and 2-bit integers one to a byte, fp8 and fp4 as their codes in
/// uint8.
struct Value {
  at::Tensor tensor;
  DType type = DType::Undefined;

  bool defined() const { return type != DType::Undefined; }
};

/// The ATen type that carries `type`; throws Unsupported for strings.
at::ScalarType carrier(DType type);
/// The ONNX type that an ATen type carries when nothing else is known.
DType natural_type(at::ScalarType type);

/// Shares the bytes where the carrier stores them alike, so the result must not be written to.
Value to_value(const Tensor& tensor);
/// Shares the bytes of a contiguous CPU tensor where the carrier stores them alike.
Tensor to_tensor(const Value& value);

/// `tensor` brought into the carrier of `type`, unsigned types wrapped to their width.
Value make_value(at::Tensor tensor, DType type);

}  // namespace kaon
