#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "graph/tensor.h"

namespace kaon {

/// A tensor of a checkpoint and the file it lies in.
struct CheckpointTensor {
  Tensor tensor;
  std::filesystem::path file;
  int64_t offset = 0;  ///< of its bytes in the file
};

/// The tensors of a folder as Hugging Face lays it out, all of them mapped: those of the shards that
/// model.safetensors.index.json names; without an index those of model.safetensors, else of all *.safetensors. Throws
/// Io for a missing shard, CorruptFile where index and shards disagree or a name comes twice, InvalidInput where the
/// folder has no such files.
std::map<std::string, CheckpointTensor> read_checkpoint(const std::filesystem::path& folder);

/// Tensor -> file name, from the text of an index. Throws CorruptFile, also for a file outside the index's folder.
std::map<std::string, std::string> parse_shard_index(std::string_view text);

}  // namespace kaon
