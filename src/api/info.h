#pragma once
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/layer.h"
#include "lm/language_model.h"

namespace kaon {

/// What a language model's config says of it.
struct LanguageModelInfo {
  std::string family;  ///< model_type
  lm::Facts facts;
  int64_t parameters = 0;
  int64_t window = 0;        ///< tokens that memory_bytes counts with
  int64_t memory_bytes = 0;  ///< that running one window will take, roughly: weights as float32, scores, logits
};

/// What a model file holds.
struct ModelInfo {
  std::string format;  ///< onnx, huggingface, gguf
  int64_t opset = 0;
  std::vector<ValueInfo> inputs;  ///< those a caller must give
  std::vector<ValueInfo> outputs;
  int64_t parameters = 0;              ///< elements of all constants
  int64_t bytes = 0;                   ///< of the file and of the external data beside it
  std::map<std::string, int64_t> ops;  ///< how often each occurs; "domain.Op" where it is not ONNX's own
  std::vector<Layer> layers;
  std::optional<LanguageModelInfo> language_model;
  std::vector<std::string> unsupported;  ///< the nodes that the engine cannot run, with the reason
};

/// Throws what load_model throws.
ModelInfo inspect_model(const std::filesystem::path& path);

/// A dimension is a number, its symbol, or null where the model leaves it open; so is a shape that it does not give.
nlohmann::ordered_json to_json(const ModelInfo& info);

}  // namespace kaon
