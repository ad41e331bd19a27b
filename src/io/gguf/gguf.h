#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "graph/tensor.h"

namespace kaon {

/// A value of the metadata: integers of any width as int64, floats of any width as double, flags in arrays as 0 and 1.
using GgufValue = std::variant<int64_t, double, bool, std::string, std::vector<int64_t>, std::vector<double>,
                               std::vector<std::string>>;

/// How the elements of a tensor are stored: `block` of them take `bytes` bytes.
struct GgufType {
  uint32_t id = 0;
  std::string_view name;  ///< "Q4_K"
  int64_t block = 1;
  int64_t bytes = 0;
  DType plain = DType::Undefined;  ///< the type of elements that are stored as they are
  void (*dequantize)(const std::byte* block, float* out) = nullptr;  ///< one block, of the others
};

/// Those that can be read, by id.
const std::vector<GgufType>& gguf_types();

/// Where a tensor lies in the mapped file.
struct GgufTensor {
  std::string name;
  Shape shape;  ///< outermost first, as everywhere in Kaon; the file says it the other way round
  const GgufType* type = nullptr;
  std::span<const std::byte> data;
};

/// A GGUF file: its metadata, and its tensors as they lie in it.
class GgufFile {
 public:
  /// Maps the file; nothing of the tensors is copied. Throws Io; CorruptFile; or Unsupported for old versions, nested
  /// arrays and tensor types that are not in gguf_types(). What is allocated is bounded by the file's size.
  static GgufFile read(const std::filesystem::path& path);
  /// The same from memory that must outlive the result and its tensors.
  static GgufFile read(std::span<const std::byte> bytes);

  int64_t version() const { return version_; }
  const std::map<std::string, GgufValue>& metadata() const { return metadata_; }
  /// Null where there is no such key, or its value is of another kind.
  template <typename T>
  const T* get_if(const std::string& key) const {
    const auto it = metadata_.find(key);
    return it == metadata_.end() ? nullptr : std::get_if<T>(&it->second);
  }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find(const std::string& name) const;

  /// Plain types stay mapped where they are aligned; all others become float32, bit for bit as the `gguf` package
  /// gives them.
  Tensor tensor(const GgufTensor& tensor) const;

 private:
  friend class GgufParser;
  std::shared_ptr<const void> owner_;  ///< null: the caller's memory
  int64_t version_ = 0;
  std::map<std::string, GgufValue> metadata_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

}  // namespace kaon
