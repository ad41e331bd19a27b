#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "graph/graph.h"

namespace kaon::nn {

/// A model made ready to train: its BatchNormalization nodes normalize by the batch at hand and give its mean and
/// variance out, which are averaged here into the running statistics that inference uses.
class TrainingForm {
 public:
  explicit TrainingForm(const Model& model);

  const Model& model() const { return model_; }
  /// The running statistics: initializers that no gradient changes.
  std::vector<std::string> frozen() const;
  /// Takes the statistics of one batch from the outputs of model().
  void average(const std::vector<at::Tensor>& outputs);
  /// The model as it was, with the parameters of `trained` and the running statistics.
  Model restored(const Model& trained) const;

 private:
  struct Running {
    std::string name;  ///< the initializer
    size_t output;     ///< of model(), with the batch's own
    float momentum;    ///< the share of the old value
    at::Tensor value;
  };

  Model original_;
  Model model_;
  std::vector<Running> running_;
};

}  // namespace kaon::nn
