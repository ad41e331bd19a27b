#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace kaon {

/// The places of a layer where a quantizer may sit.
enum class Slot { Input, Weight, Bias, Output };

/// "input", "weight", "bias", "output".
std::string_view name_of(Slot slot);

/// A node that multiplies with a constant: Conv, ConvTranspose, Gemm, MatMul, or Gather of rows of a float table; and
/// each of the two weights of an LSTM, GRU or RNN, called "name.W" and "name.R" as ONNX does.
/// Values are named as in the graph; "" where the layer has none, or lies inside a subgraph.
struct Layer {
  std::string name;  ///< unique in the graph, as a user knows it
  std::string op;
  std::string node;  ///< its id; where it lies inside a subgraph, that of the node of the graph itself that holds it
  std::shared_ptr<const Node> inner;  ///< the node where it lies inside a subgraph
  std::string bias_node;              ///< of the Add that brings a MatMul's bias, or ""
  size_t weight_input = 1;            ///< which of the node's inputs is the weight
  std::string input;                  ///< "" for Gather, which reads indices, and for recurrent nodes
  std::string weight;
  std::string bias;
  std::string output;  ///< the Add's where there is a bias_node
  Shape weight_shape;  ///< as the node sees it

  /// The node that reads the bias, and makes `output`.
  const std::string& last_node() const { return bias_node.empty() ? node : bias_node; }
  std::vector<Slot> slots() const;
  /// The value at a slot, or "".
  const std::string& value(Slot slot) const;
};

/// A node as a user knows it: its name without the leading "/" and the trailing "/Op", "/" as "."; else its output's.
std::string plain_name(const Node& node);

/// Conv or ConvTranspose: the channels of what it reads and makes lie on axis 1.
bool is_convolution(const Layer& layer);

/// LSTM, GRU or RNN.
bool is_recurrent(const Layer& layer);

/// The node itself, in the graph or inside it.
const Node& node_of(const Graph& graph, const Layer& layer);

/// Which inputs of `node` may be weights, the likelier first; none for nodes that make no layer.
std::vector<size_t> weight_inputs(const Node& node);

/// The layers of `graph` and of the graphs inside it, in the order of its nodes. A weight counts as constant when it is
/// an initializer or a Constant, or comes from one through Identity, Cast, Transpose or DequantizeLinear.
std::vector<Layer> layers(const Graph& graph);

}  // namespace kaon
