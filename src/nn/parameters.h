#pragma once
#include <filesystem>

#include "graph/graph.h"

namespace kaon::nn {

/// The initializers of `model`, by name, as safetensors.
void save_parameters(const Model& model, const std::filesystem::path& path);
/// Replaces them by those of a file. Throws InvalidInput, and changes nothing, where a name is missing or unknown or a
/// type or shape differs.
void load_parameters(Model& model, const std::filesystem::path& path);

}  // namespace kaon::nn
