#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "io/safetensors/checkpoint.h"
#include "io/safetensors/safetensors.h"

namespace kaon {

/// A tensor that a file is going to hold.
struct PlannedTensor {
  std::string name;
  DType type = DType::Undefined;
  Shape shape;
};

/// A safetensors file that is written in any order, from any thread: its header and its size come first, the bytes of
/// each tensor then go to their place. The tensors lie in the order of the reference writer. It is written under the
/// name it is given: one that others could see too early needs a folder of its own. What a file of this name holds at
/// those places stays until it is written again.
class SafetensorsDraft {
 public:
  /// Throws as write_safetensors() does, and Io where the disk has no room for the whole file.
  SafetensorsDraft(std::filesystem::path path, std::vector<PlannedTensor> tensors,
                   const SafetensorsMetadata& metadata = {{"format", "pt"}});
  ~SafetensorsDraft();
  SafetensorsDraft(const SafetensorsDraft&) = delete;
  SafetensorsDraft& operator=(const SafetensorsDraft&) = delete;

  /// Bytes of a tensor, from its byte `offset` on. Throws InvalidInput where they reach beyond it.
  void write(const std::string& name, int64_t offset, std::span<const std::byte> bytes);
  /// The whole of a tensor, which has its bytes in a file already: the kernel copies them if it can.
  void copy(const std::string& name, const CheckpointTensor& from);
  /// Everything is on its way to the disk, or an error says why not.
  void finish();

  int64_t bytes() const { return bytes_; }

 private:
  struct Place {
    int64_t begin = 0;
    int64_t end = 0;
  };

  /// Where bytes from `offset` on of a tensor go.
  int64_t place_of(const std::string& name, int64_t offset, int64_t bytes) const;
  void write_at(int64_t at, std::span<const std::byte> bytes);

  std::filesystem::path path_;
  int file_ = -1;
  int64_t bytes_ = 0;
  std::map<std::string, Place> places_;
};

}  // namespace kaon
