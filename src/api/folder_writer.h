#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "api/folder_plan.h"
#include "base/progress.h"
#include "io/quantized/coded_matrix.h"
#include "io/safetensors/safetensors_draft.h"

namespace kaon {

/// The files of a quantized folder as they come to be: shards like those of the float one, with the tensors of
/// quantized layers in place of their weights.
class FolderWriter {
 public:
  /// Makes the shards, at their full size, and everything else but the tensors. What is there already stays.
  FolderWriter(const std::filesystem::path& from, const std::filesystem::path& draft, const Checkpoint& checkpoint,
               const FolderPlan& plan);

  /// Codes a layer's weight as the checkpoint has it, some rows at a time.
  void write_weight(const FolderLayer& layer);
  /// The weight from its values as they go into the quantizer, with the parameters that it learned.
  void write_weight(const FolderLayer& layer, std::span<const float> values, const QuantParams& params);
  void write_input(const FolderLayer& layer, const QuantParams& params);
  /// Another tensor with new values, in the type it has.
  void write_values(const std::string& tensor, std::span<const float> values);
  /// All tensors that are no weights of quantized layers, as they are.
  void copy_others(Progress& progress);
  /// Then nothing can be written any more.
  void finish();

  int64_t bytes() const;

 private:
  SafetensorsDraft& shard_of(const std::string& tensor) { return *shards_.at(checkpoint_.at(tensor).file.string()); }
  void write_parts(const FolderLayer& layer, const CodedMatrix& matrix, int64_t first_row);

  const Checkpoint& checkpoint_;
  std::map<std::string, std::unique_ptr<SafetensorsDraft>> shards_;  ///< by the file that they come from
  std::set<std::string> coded_;                                      ///< weights of quantized layers
};

}  // namespace kaon
