#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "graph/graph.h"

namespace kaon {

/// What the reader accepts; newer files may mean other things by the same words.
inline constexpr int64_t kNewestIrVersion = 14;
inline constexpr int64_t kNewestOpset = 26;
/// Bytes of a model past which its weights go to a file beside it (a protobuf file ends at 2 GiB).
inline constexpr int64_t kInlineLimit = 1'900'000'000;

/// Reads a model. External data is mapped, and must lie inside the model's folder; tensors keep the mapping alive.
/// The nodes are brought into order where the file has them out of order, and the graph is verified. Whatever the file
/// says beyond Model's fields is kept in the `extra` members, as serialized protobuf, and written again.
/// Throws CorruptFile, Unsupported, InvalidInput or Io. `file_bytes`, where given, gets the size of the file and of
/// those with its external data.
Model read_onnx(const std::filesystem::path& path, int64_t* file_bytes = nullptr);
/// The same from memory. External data is looked for in `folder`; with none given, a model that has some is refused.
Model read_onnx(std::span<const std::byte> bytes, const std::filesystem::path& folder = {});

/// Writes a model; past `inline_limit` bytes its large initializers go to `<path>.data`.
void write_onnx(const Model& model, const std::filesystem::path& path, int64_t inline_limit = kInlineLimit);

/// The same, not yet committed: the external data, where there is some, and last the model.
std::vector<std::unique_ptr<AtomicFile>> draft_onnx(const Model& model, const std::filesystem::path& path,
                                                    int64_t inline_limit = kInlineLimit);

/// A single serialized tensor, as in the test_data_set folders of ONNX models.
Tensor read_tensor_proto(const std::filesystem::path& path);
Tensor read_tensor_proto(std::span<const std::byte> bytes);
void write_tensor_proto(const Tensor& tensor, const std::filesystem::path& path, const std::string& name = {});

}  // namespace kaon
