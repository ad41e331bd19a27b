#pragma once
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "lm/weights.h"

namespace kaon::lm {

/// The tensors of a folder whose config.json has a "quantization_config": matrices come as float32, as the codes say.
/// Layouts: compressed-tensors, awq (gemm), gptq (version 1), quark. Throws InvalidConfig and Unsupported at `where`,
/// naming the key.
std::unique_ptr<Weights> quantized_folder_weights(const std::filesystem::path& folder, const nlohmann::json& config,
                                                  const std::string& where);

}  // namespace kaon::lm
