#pragma once
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace kaon {

/// A model and what it is run on.
struct Trial {
  Model model;
  TensorMap inputs;
};

/// Changes attributes, types, values, shapes, inputs and outputs of a trial. The same seed makes the same changes.
class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  /// Changes `trial` and says how.
  std::string mutate(Trial& trial);

 private:
  uint64_t below(uint64_t bound) { return random_() % bound; }
  bool chance(uint64_t one_in) { return below(one_in) == 0; }
  template <typename T>
  T& any(std::vector<T>& items) {
    return items[below(items.size())];
  }
  int64_t number();
  float real();

  std::string change_attribute(Node& node);
  std::string change_wiring(Graph& graph, Node& node);
  std::string change_tensor(Trial& trial);
  std::string change_operator(Trial& trial, Node& node);
  std::string freeze_input(Trial& trial);
  Tensor retyped(const Tensor& tensor, DType type);
  Tensor reshaped(const Tensor& tensor);
  Tensor with_other_values(const Tensor& tensor);

  std::mt19937_64 random_;
  bool loops_ = false;  ///< a loop may run as long as its trip count says: no large numbers there
};

}  // namespace kaon
