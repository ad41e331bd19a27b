#include "engine/grad.h"

#include <algorithm>

#include "engine/program.h"
#include "engine/threads.h"

namespace kaon {

GradModel::GradModel(Model model, const std::vector<std::string>& frozen)
    : program_(Program::compile(std::move(model))) {
  for (const auto& [id, value] : program_->constants()) {
    const std::string& name = program_->value_names()[static_cast<size_t>(id)];
    if (value.type != DType::Float32 || std::find(frozen.begin(), frozen.end(), name) != frozen.end()) continue;
    parameters_.emplace(name, value.tensor.clone().set_requires_grad(true));
  }
}

std::vector<at::Tensor> GradModel::forward(const std::map<std::string, at::Tensor>& inputs) const {
  use_configured_threads();
  std::vector<Value> table = program_->new_table();
  for (const auto& [name, tensor] : parameters_) table[static_cast<size_t>(program_->find_value(name))].tensor = tensor;
  for (const auto& [name, tensor] : inputs) {
    const int32_t id = program_->find_value(name);
    if (std::find(program_->inputs().begin(), program_->inputs().end(), id) == program_->inputs().end()) {
      fail(ErrorCode::InvalidInput, name, "the model has no such input");
    }
    table[static_cast<size_t>(id)] = {tensor, natural_type(tensor.scalar_type())};
  }
  for (const int32_t id : program_->inputs()) {
    if (!table[static_cast<size_t>(id)].defined()) {
      fail(ErrorCode::InvalidInput, program_->value_names()[static_cast<size_t>(id)], "the model needs this input");
    }
  }
  std::vector<at::Tensor> outputs;
  for (Value& output : program_->run_table(std::move(table))) outputs.push_back(std::move(output.tensor));
  return outputs;
}

Model GradModel::trained() const {
  Model model = program_->model();
  for (Initializer& initializer : model.graph.initializers) {
    const auto it = parameters_.find(initializer.name);
    if (it != parameters_.end()) initializer.tensor = to_tensor({it->second.detach().clone(), DType::Float32});
  }
  return model;
}

}  // namespace kaon
