#include "nn/training_form.h"

#include <ATen/ATen.h>

#include "base/error.h"

namespace kaon::nn {

TrainingForm::TrainingForm(const Model& model) : original_(model), model_(model) {
  FreshNames names(model_.graph);
  for (Node& node : model_.graph.nodes) {
    if (node.op != "BatchNormalization" || !node.domain.empty()) continue;
    const float momentum = node.get_float("momentum", 0.9F);
    node.set("training_mode", int64_t{1});
    // The statistics that come out are then those of the batch alone.
    node.set("momentum", 0.0F);
    node.outputs.resize(1);
    for (const size_t input : {3, 4}) {
      const std::string& name = node.inputs.at(input);
      const Initializer* start = original_.graph.find_initializer(name);
      if (start == nullptr) fail(ErrorCode::Unsupported, node.label(), "'{}' is no initializer", name);
      node.outputs.push_back(names.make(name + "_of_batch"));
      running_.push_back({name, model_.graph.outputs.size(), momentum,
                          at::tensor(start->tensor.to_float()).reshape(start->tensor.shape())});
      ValueInfo output;
      output.name = node.outputs.back();
      model_.graph.outputs.push_back(output);
    }
  }
}

std::vector<std::string> TrainingForm::frozen() const {
  std::vector<std::string> names;
  for (const Running& running : running_) names.push_back(running.name);
  return names;
}

void TrainingForm::average(const std::vector<at::Tensor>& outputs) {
  const at::NoGradGuard no_gradients;
  for (Running& running : running_) {
    running.value.mul_(running.momentum).add_(outputs[running.output], 1 - running.momentum);
  }
}

Model TrainingForm::restored(const Model& trained) const {
  Model model = original_;
  for (Initializer& initializer : model.graph.initializers) {
    initializer.tensor = trained.graph.find_initializer(initializer.name)->tensor;
  }
  for (const Running& running : running_) {
    const std::span<const float> values(running.value.data_ptr<float>(), static_cast<size_t>(running.value.numel()));
    Initializer* initializer = model.graph.find_initializer(running.name);
    initializer->tensor = Tensor::of<float>(initializer->tensor.shape(), values);
  }
  return model;
}

}  // namespace kaon::nn
