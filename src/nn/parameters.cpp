#include "nn/parameters.h"

#include <map>

#include "base/error.h"
#include "io/safetensors/safetensors.h"

namespace kaon::nn {

namespace fs = std::filesystem;

void save_parameters(const Model& model, const fs::path& path) {
  NamedTensors tensors;
  for (const Initializer& initializer : model.graph.initializers) {
    tensors.emplace_back(initializer.name, initializer.tensor);
  }
  write_safetensors(tensors, path);
}

void load_parameters(Model& model, const fs::path& path) {
  const auto refuse = [&](const std::string& name, const std::string& why) {
    fail(ErrorCode::InvalidInput, path.string(), "the parameter '{}' {}", name, why);
  };
  std::map<std::string, Tensor> found;
  for (auto& [name, tensor] : read_safetensors(path)) {
    if (model.graph.find_initializer(name) == nullptr) refuse(name, "is not in the model");
    found.emplace(name, tensor);
  }
  for (const Initializer& initializer : model.graph.initializers) {
    const auto it = found.find(initializer.name);
    if (it == found.end()) refuse(initializer.name, "is missing");
    if (it->second.type() != initializer.tensor.type() || it->second.shape() != initializer.tensor.shape()) {
      refuse(initializer.name,
             fmt::format("is {} {}, in the model {} {}", name_of(it->second.type()), to_string(it->second.shape()),
                         name_of(initializer.tensor.type()), to_string(initializer.tensor.shape())));
    }
  }
  for (Initializer& initializer : model.graph.initializers) initializer.tensor = found.at(initializer.name);
}

}  // namespace kaon::nn
