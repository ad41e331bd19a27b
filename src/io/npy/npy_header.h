#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "graph/tensor.h"

namespace kaon {

/// What stands before the data of a .npy file.
struct NpyHeader {
  DType type = DType::Undefined;
  Shape shape;
  bool big_endian = false;
  bool fortran_order = false;
  size_t data_offset = 0;
};

/// Throws CorruptFile or Unsupported. The header's numbers are checked, but not against the data that follows.
NpyHeader parse_npy_header(std::span<const std::byte> bytes);

/// Magic, version and dictionary for little-endian C order, padded so that the data starts at a multiple of 64 bytes.
/// Throws Unsupported for types that NumPy does not have.
std::string make_npy_header(DType type, const Shape& shape);

}  // namespace kaon
