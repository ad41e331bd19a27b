#include "graph/layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "graph/node_id.h"

namespace kaon {

namespace {

bool is_float(DType type) {
  return type == DType::Float32 || type == DType::Float16 || type == DType::BFloat16 || type == DType::Float64;
}

/// A constant as a node sees it.
struct Constant {
  Shape shape;
  DType type = DType::Undefined;
  std::string_view root;  ///< the value the data is stored under
};

/// Finds the constants of a graph, also behind the operators that only rearrange or rescale them.
class Constants {
 public:
  Constants(const Graph& graph, const Uses& uses) : graph_(graph), uses_(uses) {
    for (const Initializer& initializer : graph.initializers) initializers_.emplace(initializer.name, &initializer);
  }

  std::optional<Constant> find(std::string_view value, int steps = 0) const {
    constexpr int kMostSteps = 32;  // a file may chain any number of Identity nodes
    const auto it = initializers_.find(value);
    if (it != initializers_.end()) return Constant{it->second->tensor.shape(), it->second->tensor.type(), value};
    const int64_t producer = uses_.producer(value);
    if (producer < 0 || steps == kMostSteps) return std::nullopt;
    const Node& node = graph_.nodes[static_cast<size_t>(producer)];
    if (node.op == "Constant") {
      const auto* tensor = node.get_if<Tensor>("value");
      if (tensor == nullptr) return std::nullopt;
      return Constant{tensor->shape(), tensor->type(), value};
    }
    if (node.inputs.empty()) return std::nullopt;
    if (node.op == "Identity") return find(node.inputs[0], steps + 1);
    if (node.op == "Cast") return with_type(find(node.inputs[0], steps + 1), static_cast<DType>(node.get_int("to", 0)));
    if (node.op == "DequantizeLinear" && node.inputs.size() > 1) {
      const std::optional<Constant> scale = find(node.inputs[1], steps + 1);
      return scale ? with_type(find(node.inputs[0], steps + 1), scale->type) : std::nullopt;
    }
    if (node.op == "Transpose") return transposed(find(node.inputs[0], steps + 1), node.get_ints("perm"));
    return std::nullopt;
  }

 private:
  static std::optional<Constant> with_type(std::optional<Constant> constant, DType type) {
    if (constant) constant->type = type;
    return constant;
  }

  static std::optional<Constant> transposed(std::optional<Constant> constant, const std::vector<int64_t>& perm) {
    if (!constant) return constant;
    const Shape from = constant->shape;
    if (perm.empty()) {
      std::reverse(constant->shape.begin(), constant->shape.end());
      return constant;
    }
    if (perm.size() != from.size()) return std::nullopt;
    for (size_t i = 0; i < perm.size(); ++i) {
      if (perm[i] < 0 || perm[i] >= std::ssize(from)) return std::nullopt;
      constant->shape[i] = from[static_cast<size_t>(perm[i])];
    }
    return constant;
  }

  const Graph& graph_;
  const Uses& uses_;
  std::unordered_map<std::string_view, const Initializer*> initializers_;
};

/// Which input of `node` may be its weight, the likelier first, and what rank it must have.
struct WeightRule {
  std::string_view op;
  std::vector<size_t> inputs;
  int64_t least_rank;
  int64_t most_rank;
};

const WeightRule* weight_rule(const Node& node) {
  static const std::array<WeightRule, 5> kRules{{
      {"Conv", {1}, 3, 8},
      {"ConvTranspose", {1}, 3, 8},
      {"Gemm", {1, 0}, 2, 2},
      {"MatMul", {1, 0}, 2, 8},
      {"Gather", {0}, 2, 2},
  }};
  if (!node.domain.empty()) return nullptr;
  const auto it =
      std::find_if(kRules.begin(), kRules.end(), [&](const WeightRule& rule) { return rule.op == node.op; });
  return it == kRules.end() ? nullptr : &*it;
}

/// The Add that alone reads a MatMul's output and adds a constant of one element per column.
void find_matmul_bias(Layer& layer, const Graph& graph, const Uses& uses, const Constants& constants) {
  const std::vector<int64_t>& readers = uses.consumers(layer.output);
  if (layer.weight_input != 1 || readers.size() != 1 || uses.is_output(layer.output)) return;
  const Node& add = graph.nodes[static_cast<size_t>(readers[0])];
  if (add.op != "Add" || !add.domain.empty() || add.inputs.size() != 2 || add.outputs.size() != 1) return;
  const std::string& other = add.inputs[add.inputs[0] == layer.output ? 1 : 0];
  const std::optional<Constant> bias = constants.find(other);
  const int64_t columns = layer.weight_shape.back();
  if (!bias || bias->shape.empty() || bias->shape.back() != columns || element_count(bias->shape) != columns) return;
  // A bias of higher rank would add leading axes to the result.
  if (bias->shape.size() > layer.weight_shape.size()) return;
  layer.bias = other;
  layer.bias_node = node_id(add);
  layer.output = add.outputs[0];
}

std::optional<Layer> find_layer(const Graph& graph, int64_t index, const Uses& uses, const Constants& constants) {
  const Node& node = graph.nodes[static_cast<size_t>(index)];
  const WeightRule* rule = weight_rule(node);
  if (rule == nullptr || node.outputs.empty()) return std::nullopt;
  for (const size_t at : rule->inputs) {
    if (at >= node.inputs.size()) continue;
    const std::optional<Constant> weight = constants.find(node.inputs[at]);
    if (!weight || !is_float(weight->type) || element_count(weight->shape) == 0) continue;
    const int64_t rank = std::ssize(weight->shape);
    if (rank < rule->least_rank || rank > rule->most_rank) continue;
    if (node.op == "Gather" && node.get_int("axis", 0) != 0) continue;
    Layer layer;
    layer.op = node.op;
    layer.node = node_id(node);
    layer.weight_input = at;
    layer.weight = node.inputs[at];
    layer.weight_shape = weight->shape;
    layer.output = node.outputs[0];
    if (node.op != "Gather" && node.inputs.size() > 1) layer.input = node.inputs[1 - at];
    if (node.op == "MatMul")
      find_matmul_bias(layer, graph, uses, constants);
    else if (node.inputs.size() > 2 && constants.find(node.inputs[2]))
      layer.bias = node.inputs[2];
    return layer;
  }
  return std::nullopt;
}

/// The weight's name without ".weight", else the node's.
std::string layer_name(const Layer& layer, const Node& node, const Constants& constants) {
  constexpr std::string_view kSuffix = ".weight";
  for (const std::string_view value : {std::string_view(layer.weight), constants.find(layer.weight)->root}) {
    if (value.size() > kSuffix.size() && value.ends_with(kSuffix)) {
      return std::string(value.substr(0, value.size() - kSuffix.size()));
    }
  }
  return plain_name(node);
}

}  // namespace

std::string_view name_of(Slot slot) {
  switch (slot) {
    case Slot::Input: return "input";
    case Slot::Weight: return "weight";
    case Slot::Bias: return "bias";
    case Slot::Output: break;
  }
  return "output";
}

const std::string& Layer::value(Slot slot) const {
  switch (slot) {
    case Slot::Input: return input;
    case Slot::Weight: return weight;
    case Slot::Bias: return bias;
    case Slot::Output: break;
  }
  return output;
}

std::vector<Slot> Layer::slots() const {
  std::vector<Slot> present;
  for (const Slot slot : {Slot::Input, Slot::Weight, Slot::Bias, Slot::Output}) {
    if (!value(slot).empty()) present.push_back(slot);
  }
  return present;
}

bool is_convolution(const Layer& layer) { return layer.op == "Conv" || layer.op == "ConvTranspose"; }

std::string plain_name(const Node& node) {
  std::string_view name = node.name;
  if (name.starts_with('/')) name.remove_prefix(1);
  const std::string op = "/" + node.op;
  if (name.size() > op.size() && name.ends_with(op)) name.remove_suffix(op.size());
  if (name.empty()) return node.outputs.empty() ? node.op : node.outputs[0];
  std::string dotted(name);
  std::replace(dotted.begin(), dotted.end(), '/', '.');
  return dotted;
}

std::vector<Layer> layers(const Graph& graph) {
  const Uses uses(graph);
  const Constants constants(graph, uses);
  std::vector<Layer> found;
  for (int64_t i = 0; i < std::ssize(graph.nodes); ++i) {
    if (std::optional<Layer> layer = find_layer(graph, i, uses, constants)) {
      layer->name = layer_name(*layer, graph.nodes[static_cast<size_t>(i)], constants);
      found.push_back(std::move(*layer));
    }
  }
  // A plain name that already looks like "x#2" keeps it; the numbered ones go around.
  std::unordered_set<std::string> taken;
  std::vector<Layer*> repeated;
  for (Layer& layer : found) {
    if (!taken.insert(layer.name).second) repeated.push_back(&layer);
  }
  std::unordered_map<std::string, int> last;
  for (Layer* layer : repeated) {
    int& number = last.emplace(layer->name, 1).first->second;
    std::string numbered;
    do numbered = fmt::format("{}#{}", layer->name, ++number);
    while (!taken.insert(numbered).second);
    layer->name = std::move(numbered);
  }
  return found;
}

}  // namespace kaon
