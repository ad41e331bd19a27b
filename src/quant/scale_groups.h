#pragma once
#include <string>
#include <vector>

#include "graph/dataset.h"
#include "quant/quantizer.h"

namespace kaon {

/// Products that read a value, or what is made of it channel by channel, and what can divide its channels by factors
/// that the products take back: a norm or a multiplication by constants (norm -> the products that read it), or a layer
/// (v -> out projection, up -> down).
struct ScaleGroup {
  /// A float vector along the last axis, and the edge that reads it.
  struct Vector {
    std::string name;
    Reader reader;
  };
  /// Values on the way whose last axis holds channels of the source; one may stand at several places of it.
  struct Carried {
    std::string value;
    std::vector<int64_t> channel;  ///< of the source, by index of the last axis
  };
  struct Product {
    const Layer* layer = nullptr;
    size_t carried = 0;  ///< which of `carried` it reads
  };

  std::string name;              ///< of the node or layer that takes the factors, for people
  const Layer* layer = nullptr;  ///< either this layer, its weight and bias …
  std::vector<Vector> vectors;   ///< … or these constants
  int64_t channels = 0;          ///< of the source; those that no product reads must not be changed
  std::vector<Carried> carried;  ///< the source's value is the first
  std::vector<Product> products;
};

/// Whether the weight of `layer` is a float32 matrix that it alone reads, on the right of the product, and its bias has
/// one number for each output.
bool is_own_product(const Graph& graph, const Uses& uses, const Layer& layer);

/// The groups of a model, in the order of its nodes; no product is in two of them. Operators say whether they pass
/// factors on (OpFacts); which channel goes where is found by running the nodes between, for which one sample of `data`
/// is needed.
std::vector<ScaleGroup> find_scale_groups(const QuantizedModel& quantized, const Dataset& data);

}  // namespace kaon
