#pragma once
#include <memory>
#include <vector>

#include "engine/engine.h"

namespace kaon {

/// Runs models that are one graph with other weights, as the blocks of a language model are: a program and its plans
/// are made of the first, those that follow bring their weights alone. Each gives what an Engine of its own would, bit
/// for bit.
class BlockEngine {
 public:
  BlockEngine();
  ~BlockEngine();
  BlockEngine(BlockEngine&&) noexcept;
  BlockEngine& operator=(BlockEngine&&) noexcept;

  /// Goes on with the weights of `model`, whatever its values are called. Where more than weights is different, this is
  /// a first model.
  void use(Model model);
  /// Of the model in use; see Engine::run.
  std::vector<Tensor> run(const TensorMap& inputs);

  int64_t programs_made() const { return programs_made_; }
  /// Of the program in use.
  int64_t plans_made() const;

 private:
  std::shared_ptr<Program> program_;
  std::unique_ptr<Plans> plans_;
  int64_t programs_made_ = 0;
};

}  // namespace kaon
