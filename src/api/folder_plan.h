#pragma once
#include <optional>
#include <string>
#include <vector>

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
  std::string layout;    ///< "pack-quantized"

  std::string tensor() const { return module + ".weight"; }
};

struct FolderPlan {
  Config config;  ///< as far as the layout can follow it
  std::vector<FolderLayer> layers;
  std::vector<std::string> left;  ///< Linear layers that stay float
  std::vector<Skipped> skipped;
  std::vector<std::string> notes;
};

/// Which layers of `model` become what in a compressed-tensors folder; looks at no weight's values.
FolderPlan plan_folder(const lm::LanguageModel& model, const Checkpoint& checkpoint, const Config& config,
                       const std::string& where);

/// "quantization_config" of such a folder.
nlohmann::ordered_json quantization_config(const FolderPlan& plan);

}  // namespace kaon
