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
  /// `outer`: the constants of the graph around, or nullptr.
  Constants(const Graph& graph, const Uses& uses, const Constants* outer) : graph_(graph), uses_(uses), outer_(outer) {
    for (const Initializer& initializer : graph.initializers) initializers_.emplace(initializer.name, &initializer);
  }

  std::optional<Constant> find(std::string_view value, int steps = 0) const {
    constexpr int kMostSteps = 32;  // a file may chain any number of Identity nodes
    const auto it = initializers_.find(value);
    if (it != initializers_.end()) return Constant{it->second->tensor.shape(), it->second->tensor.type(), value};
    const int64_t producer = uses_.producer(value);
    if (producer < 0 && outer_ != nullptr && !is_input(value)) return outer_->find(value, steps);
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
  bool is_input(std::string_view value) const {
    return std::ranges::any_of(graph_.inputs, [&](const ValueInfo& input) { return input.name == value; });
  }

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
  const Constants* outer_;
  std::unordered_map<std::string_view, const Initializer*> initializers_;
};

/// Which input of `node` may be its weight, the likelier first, and what rank it must have.
struct WeightRule {
  std::string_view op;
  std::vector<size_t> inputs;
  int64_t least_rank;
  int64_t most_rank;
  std::vector<std::string_view> suffixes = {};  ///< not empty: each input is a weight, and its layer's name ends so
};

const WeightRule* weight_rule(const Node& node) {
  static const std::array<WeightRule, 8> kRules{{
      {"Conv", {1}, 3, 8},
      {"ConvTranspose", {1}, 3, 8},
      {"Gemm", {1, 0}, 2, 2},
      {"MatMul", {1, 0}, 2, 8},
      {"Gather", {0}, 2, 2},
      {"LSTM", {1, 2}, 3, 3, {".W", ".R"}},
      {"GRU", {1, 2}, 3, 3, {".W", ".R"}},
      {"RNN", {1, 2}, 3, 3, {".W", ".R"}},
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

/// What stands at one place of a graph.
struct Place {
  const Graph& graph;
  const Uses& uses;
  const Constants& constants;
};

/// The layer that `node` is with its input `at` as the weight.
std::optional<Layer> as_layer(const WeightRule& rule, const Node& node, size_t at, const Constants& constants) {
  if (at >= node.inputs.size()) return std::nullopt;
  const std::optional<Constant> weight = constants.find(node.inputs[at]);
  if (!weight || !is_float(weight->type) || element_count(weight->shape) == 0) return std::nullopt;
  const int64_t rank = std::ssize(weight->shape);
  if (rank < rule.least_rank || rank > rule.most_rank) return std::nullopt;
  if (node.op == "Gather" && node.get_int("axis", 0) != 0) return std::nullopt;
  Layer layer;
  layer.op = node.op;
  layer.weight_input = at;
  layer.weight = node.inputs[at];
  layer.weight_shape = weight->shape;
  return layer;
}

void find_slots(Layer& layer, const Node& node, const Place& place) {
  layer.output = node.outputs[0];
  if (node.op != "Gather" && node.inputs.size() > 1) layer.input = node.inputs[1 - layer.weight_input];
  if (node.op == "MatMul")
    find_matmul_bias(layer, place.graph, place.uses, place.constants);
  else if (node.inputs.size() > 2 && place.constants.find(node.inputs[2]))
    layer.bias = node.inputs[2];
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

/// `top`: the node of the outermost graph that holds `graph`, or nullptr for that graph itself.
void find_layers(const Graph& graph, const Constants* outer, const Node* top, std::vector<Layer>& found) {
  const Uses uses(graph);
  const Constants constants(graph, uses, outer);
  for (const Node& node : graph.nodes) {
    const WeightRule* rule = node.outputs.empty() ? nullptr : weight_rule(node);
    for (size_t k = 0; rule != nullptr && k < rule->inputs.size(); ++k) {
      std::optional<Layer> layer = as_layer(*rule, node, rule->inputs[k], constants);
      if (!layer) continue;
      layer->node = node_id(top == nullptr ? node : *top);
      layer->name = rule->suffixes.empty() ? layer_name(*layer, node, constants)
                                           : plain_name(node) + std::string(rule->suffixes[k]);
      if (top != nullptr) {
        layer->inner = std::make_shared<const Node>(node);
      } else if (rule->suffixes.empty()) {
        find_slots(*layer, node, {graph, uses, constants});
      }
      found.push_back(std::move(*layer));
      if (rule->suffixes.empty()) break;
    }
    for (const std::shared_ptr<Graph>& inside : subgraphs(node)) {
      find_layers(*inside, &constants, top == nullptr ? &node : top, found);
    }
  }
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

bool is_recurrent(const Layer& layer) { return layer.op == "LSTM" || layer.op == "GRU" || layer.op == "RNN"; }

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

const Node& node_of(const Graph& graph, const Layer& layer) {
  return layer.inner != nullptr ? *layer.inner : node_by_id(graph, layer.node);
}

std::vector<size_t> weight_inputs(const Node& node) {
  const WeightRule* rule = weight_rule(node);
  return rule == nullptr || node.outputs.empty() ? std::vector<size_t>{} : rule->inputs;
}

std::vector<Layer> layers(const Graph& graph) {
  std::vector<Layer> found;
  find_layers(graph, nullptr, nullptr, found);
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
