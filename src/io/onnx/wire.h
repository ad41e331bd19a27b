#pragma once
#include <cstddef>
#include <span>
#include <string_view>

namespace kaon {

enum class WireRoot { Model, Tensor };

/// Walks the protobuf wire format of an ONNX file without allocating. Throws CorruptFile, naming the field and the
/// byte, where a field is malformed or runs past its end, and where nesting or the number of fields would make parsing
/// take absurd memory. What passes here parses.
void check_wire(std::span<const std::byte> bytes, WireRoot root);

/// What kind of other file the bytes begin like ("a zip archive"), or "".
std::string_view looks_like(std::span<const std::byte> bytes);

}  // namespace kaon
