#pragma once
#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "io/npy/npy.h"

namespace kaon {

/// The text that a file says about itself.
using SafetensorsMetadata = std::map<std::string, std::string>;

/// Reads a safetensors file, its tensors in the order of their data. They stay mapped where they are aligned. Nothing
/// but the layout that the format defines is accepted: a header of at most 100 MB, data without holes or overlaps.
/// Throws CorruptFile, Io, or Unsupported for the 6-bit types. `metadata`, where given, gets "__metadata__".
NamedTensors read_safetensors(const std::filesystem::path& path, SafetensorsMetadata* metadata = nullptr);
NamedTensors read_safetensors(std::span<const std::byte> bytes, SafetensorsMetadata* metadata = nullptr);

/// Writes the tensors as the reference writer does: wide types first, then by name, the header padded to 8 bytes.
/// Throws InvalidInput for a name that comes twice and Unsupported for types that safetensors lacks (strings, int4 …).
void write_safetensors(const NamedTensors& tensors, const std::filesystem::path& path,
                       const SafetensorsMetadata& metadata = {{"format", "pt"}});

}  // namespace kaon
