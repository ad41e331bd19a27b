#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graph/tensor.h"

namespace kaon {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

enum class NpzCompression { None, Deflate };

/// Reads NumPy's .npy, versions 1 to 3: bool, integers, float16/32/64 and complex, either byte order, C or Fortran
/// order. The data stays mapped where its layout allows. Throws CorruptFile, Unsupported or Io.
Tensor read_npy(const std::filesystem::path& path);
Tensor read_npy(std::span<const std::byte> bytes);
/// Throws Unsupported for types that NumPy does not have.
void write_npy(const Tensor& tensor, const std::filesystem::path& path);

/// The arrays of a .npz in the order of the file, without the ".npy" of their names.
NamedTensors read_npz(const std::filesystem::path& path);
NamedTensors read_npz(std::span<const std::byte> bytes);
void write_npz(const NamedTensors& tensors, const std::filesystem::path& path,
               NpzCompression compression = NpzCompression::None);

}  // namespace kaon
