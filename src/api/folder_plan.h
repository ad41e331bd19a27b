#pragma once
#include <optional>
#include <string>
#include <vector>

#include "io/quantized/compressed_tensors.h"
#include "io/safetensors/checkpoint.h"
#include "lm/language_model.h"
#include "quant/quantizer.h"

namespace kaon {

using Checkpoint = std::map<std::string, CheckpointTensor>;

/// A layer of a checkpoint that gets codes.
struct FolderLayer {
  std::string name;    ///< as in the graph
  std::string module;  ///< what its tensors' names begin with in the checkpoint
  Shape shape;         ///< [outputs, inputs]
  TensorSpec weight;   ///< groups along axis 1
  std::optional<TensorSpec> input;
  bool dynamic = false;  ///< its input's parameters follow from the data
  std::string layout;    ///< "pack-quantized" … of compressed-tensors; "awq", "gptq", "quark"

  std::string tensor() const { return module + ".weight"; }
};

struct FolderPlan {
  std::string method;  ///< one of folder_methods()
  Config config;       ///< as far as the layout can follow it
  std::vector<FolderLayer> layers;
  std::vector<std::string> left;  ///< Linear layers that stay float
  std::vector<Skipped> skipped;
  std::vector<std::string> notes;
};

/// The ways to write a folder.
std::vector<std::string> folder_methods();

/// Which layers of `model` become what in a folder of this method; looks at no weight's values. Throws Unsupported for
/// what the method has no place for.
FolderPlan plan_folder(const lm::LanguageModel& model, const Checkpoint& checkpoint, const Config& config,
                       const std::string& method, const std::string& where);

/// The tensors that a layer's weight becomes, and their bytes for a matrix or, where every part has row_bits, rows.
std::vector<compressed_tensors::Part> parts_of(const FolderLayer& layer);
std::vector<std::vector<std::byte>> encode(const FolderLayer& layer, const CodedMatrix& matrix);
/// Whether some rows can be coded apart from the others.
bool goes_by_rows(const FolderLayer& layer);

/// "quantization_config" of such a folder.
nlohmann::ordered_json quantization_config(const FolderPlan& plan);

}  // namespace kaon
