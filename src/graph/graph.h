#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <variant>
#include <vector>

#include "graph/tensor.h"

namespace kaon {

struct Graph;

/// A dimension is a number, a symbol ("batch"), or unknown.
struct Dim {
  std::optional<int64_t> value;
  std::string symbol;
};

/// Name, type and shape of a value, where the model says them.
struct ValueInfo {
  std::string name;
  DType type = DType::Undefined;  ///< Undefined for sequences, maps, optionals: those stay in `extra`
  std::optional<std::vector<Dim>> shape;
  std::string doc;
  std::string extra;  ///< what a file said beyond this; the reader's business (see io/onnx)
};

/// An attribute whose kind Kaon does not use (sparse tensors, type protos); carried through as it was read.
struct OpaqueAttribute {};

using AttributeValue = std::variant<OpaqueAttribute, float, int64_t, std::string, Tensor, std::shared_ptr<Graph>,
                                    std::vector<float>, std::vector<int64_t>, std::vector<std::string>,
                                    std::vector<Tensor>, std::vector<std::shared_ptr<Graph>>>;

struct Attribute {
  std::string name;
  AttributeValue value;
  std::string extra;
};

/// One operation. Values are referred to by name; "" is an omitted optional input or output.
struct Node {
  std::string name;
  std::string op;
  std::string domain;  ///< "" is ONNX's own
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::vector<Attribute> attributes;
  std::string doc;
  std::string extra;

  const Attribute* find(std::string_view attribute) const;
  template <typename T>
  const T* get_if(std::string_view attribute) const {
    const Attribute* found = find(attribute);
    return found == nullptr ? nullptr : std::get_if<T>(&found->value);
  }
  int64_t get_int(std::string_view attribute, int64_t otherwise) const;
  float get_float(std::string_view attribute, float otherwise) const;
  std::string get_string(std::string_view attribute, std::string otherwise) const;
  std::vector<int64_t> get_ints(std::string_view attribute, std::vector<int64_t> otherwise = {}) const;
  void set(std::string attribute, AttributeValue value);
  void erase(std::string_view attribute);
  /// "Conv '/layer1/conv'", for messages.
  std::string label() const;
};

/// A constant that the graph carries by name.
struct Initializer {
  std::string name;
  Tensor tensor;
  std::string doc;
  std::string extra;
};

/// Nodes in an order where every value is made before it is used; every value name is made once.
/// A subgraph also sees the values of the graphs around it.
struct Graph {
  std::string name;
  std::string doc;
  std::vector<ValueInfo> inputs;
  std::vector<ValueInfo> outputs;
  std::vector<Initializer> initializers;
  std::vector<Node> nodes;
  std::vector<ValueInfo> values;  ///< infos of values between, as far as the file gives them
  std::string extra;

  const Initializer* find_initializer(std::string_view value) const;
  Initializer* find_initializer(std::string_view value);
  /// The inputs a caller must give: those without an initializer.
  std::vector<ValueInfo> required_inputs() const;
  /// A value name that is not in use yet: `wanted`, or wanted_1, wanted_2 … For many names, see FreshNames.
  std::string fresh_name(const std::string& wanted) const;
};

/// A graph and what its file says about it.
struct Model {
  Graph graph;
  int64_t ir_version = 8;
  std::map<std::string, int64_t> opsets;  ///< domain -> version
  std::string producer_name;
  std::string producer_version;
  std::string domain;
  int64_t model_version = 0;
  std::string doc;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::string extra;

  /// The version of ONNX's own operators.
  int64_t opset() const;
};

/// Who makes and who uses each value of one graph (subgraphs count as users through the node that holds them).
/// Built once, valid until the graph changes.
class Uses {
 public:
  explicit Uses(const Graph& graph);
  /// The index of the node that makes `value`, or -1.
  int64_t producer(std::string_view value) const;
  /// Indices of the nodes that read `value`, each once, in order.
  const std::vector<int64_t>& consumers(std::string_view value) const;
  bool is_output(std::string_view value) const;

 private:
  std::map<std::string, int64_t, std::less<>> producers_;
  std::map<std::string, std::vector<int64_t>, std::less<>> consumers_;
  std::set<std::string, std::less<>> outputs_;
};

/// Makes value names that are new to a graph and to every graph inside it.
class FreshNames {
 public:
  explicit FreshNames(const Graph& graph);
  /// `wanted`, or wanted_1, wanted_2 …
  std::string make(const std::string& wanted);

 private:
  void collect(const Graph& graph);
  std::unordered_set<std::string> taken_;
};

/// The graphs among a node's attributes.
std::vector<std::shared_ptr<Graph>> subgraphs(const Node& node);
/// Calls `edit` on each subgraph of `node`. Copies of a graph share their subgraphs, so each is copied before.
void edit_subgraphs(Node& node, const std::function<void(Graph&)>& edit);
/// Names that `graph` reads from the graphs around it.
std::vector<std::string> captured_values(const Graph& graph);

}  // namespace kaon
