#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace kaon {

class Program;

/// The same graph, differentiable: runs its nodes with ATen under autograd, float initializers as parameters.
/// The only public header of this layer that shows ATen.
class GradModel {
 public:
  /// Throws Unsupported with every node that cannot run. `frozen` names initializers that stay constant.
  explicit GradModel(Model model, const std::vector<std::string>& frozen = {});

  /// By initializer name; each requires a gradient. An optimizer may change them in place.
  std::map<std::string, at::Tensor>& parameters() { return parameters_; }
  /// The graph's outputs, in its order; missing or unknown inputs throw InvalidInput.
  std::vector<at::Tensor> forward(const std::map<std::string, at::Tensor>& inputs) const;
  /// The model with the parameters' present values.
  Model trained() const;

 private:
  std::shared_ptr<const Program> program_;
  std::map<std::string, at::Tensor> parameters_;
};

}  // namespace kaon
