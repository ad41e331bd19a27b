#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "graph/passes/passes.h"
#include "graph/stored.h"

namespace kaon::passes {

namespace {

/// What a fold may add to the model, in bytes; to large inputs it may add as much again, as widening 16 bits does.
constexpr int64_t kMostGrowth = int64_t{16} << 20;

/// The constants that a graph sees, with those of the graphs around it.
struct Scope {
  const Scope* outer = nullptr;
  std::unordered_map<std::string, Tensor> constants;
  std::unordered_set<std::string> others;  ///< its values that are not constant

  const Tensor* find(const std::string& value) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->outer) {
      const auto it = scope->constants.find(value);
      if (it != scope->constants.end()) return &it->second;
      if (scope->others.contains(value)) return nullptr;
    }
    return nullptr;
  }
};

/// Random, or of meaning beyond their value (a quantized weight must stay one), or of unforeseeable size.
bool must_stay(const Node& node) {
  static constexpr std::array<std::string_view, 17> kOps{"Bernoulli",        "Multinomial",
                                                         "RandomNormal",     "RandomNormalLike",
                                                         "RandomUniform",    "RandomUniformLike",
                                                         "Dropout",          "QuantizeLinear",
                                                         "DequantizeLinear", "DynamicQuantizeLinear",
                                                         "Constant",         "Resize",
                                                         "Upsample",         "Pad",
                                                         "OneHot",           "EyeLike",
                                                         "CenterCropPad"};
  return std::find(kOps.begin(), kOps.end(), node.op) != kOps.end() || !subgraphs(node).empty();
}

/// A 16-bit weight stays as it is stored: those who need its numbers widen it where they read it. Not where a batch
/// norm will go into it.
bool widens_weight(const Node& node, const Graph& graph, const Uses& uses, const Scope& scope) {
  if (node.op != "Cast" || node.inputs.size() != 1 || node.outputs.size() != 1) return false;
  const Tensor* stored = scope.outer == nullptr ? scope.find(node.inputs[0]) : nullptr;
  if (stored == nullptr || !is_half(stored->type()) || stored->rank() < 2) return false;
  if (node.get_int("to", 0) != static_cast<int64_t>(DType::Float32)) return false;
  return std::ranges::all_of(uses.consumers(node.outputs[0]), [&](int64_t index) {
    const Node& reader = graph.nodes[static_cast<size_t>(index)];
    const bool layer =
        reader.op == "Conv" || reader.op == "ConvTranspose" || reader.op == "Gemm" || reader.op == "MatMul";
    if (!layer || !reader.domain.empty() || std::ranges::count(reader.inputs, node.outputs[0]) != 1) return false;
    if (reader.inputs.size() < 2 || reader.inputs[1] != node.outputs[0]) return false;
    return std::ranges::none_of(uses.consumers(reader.outputs[0]), [&](int64_t next) {
      return graph.nodes[static_cast<size_t>(next)].op == "BatchNormalization";
    });
  });
}

/// At least the elements that the outputs will have, for the operators whose outputs dwarf their inputs.
int64_t foreseen_elements(const Node& node, std::span<const Tensor> inputs) {
  const auto product = [](const std::vector<int64_t>& dims, int64_t count) {
    for (const int64_t dim : dims) {
      if (dim > 0 && count > kMostGrowth / dim) return kMostGrowth + 1;
      count *= std::max<int64_t>(dim, 0);
    }
    return count;
  };
  if (node.op == "ConstantOfShape") return product(inputs[0].to_int64(), 1);
  if (node.op == "Expand" && inputs.size() > 1) return product(inputs[1].to_int64(), 1);
  if (node.op == "Tile" && inputs.size() > 1) return product(inputs[1].to_int64(), inputs[0].size());
  if (node.op == "Range" && inputs.size() > 2 &&
      std::all_of(inputs.begin(), inputs.end(), [](const Tensor& tensor) { return tensor.size() == 1; })) {
    const double delta = inputs[2].to_float()[0];
    const double steps = (static_cast<double>(inputs[1].to_float()[0]) - inputs[0].to_float()[0]) / delta;
    return std::abs(steps) <= kMostGrowth ? static_cast<int64_t>(steps) : kMostGrowth + 1;
  }
  // The broadcast shape bounds what element-wise operators and matrix products give.
  size_t rank = 0;
  for (const Tensor& input : inputs) rank = std::max(rank, input.shape().size());
  std::vector<int64_t> broadcast(rank, 1);
  for (const Tensor& input : inputs) {
    for (size_t i = 0; i < input.shape().size(); ++i) {
      int64_t& dim = broadcast[rank - 1 - i];
      dim = std::max(dim, input.shape()[input.shape().size() - 1 - i]);
    }
  }
  return product(broadcast, 1);
}

class Folder {
 public:
  Folder(const Model& model, const PassContext& context) : model_(model), context_(context) {}

  int64_t fold(Graph& graph, const Scope* outer) {
    Scope scope{outer, {}, {}};
    for (const ValueInfo& input : graph.inputs) scope.others.insert(input.name);
    for (const Initializer& initializer : graph.initializers) scope.constants[initializer.name] = initializer.tensor;
    std::unordered_set<std::string> outputs;
    for (const ValueInfo& output : graph.outputs) outputs.insert(output.name);
    const Uses uses(graph);
    std::vector<bool> stays;
    for (const Node& node : graph.nodes) stays.push_back(widens_weight(node, graph, uses, scope));
    int64_t changes = 0;
    std::vector<Node> kept;
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      Node& node = graph.nodes[i];
      const bool is_output = std::any_of(node.outputs.begin(), node.outputs.end(),
                                         [&](const std::string& output) { return outputs.contains(output); });
      std::vector<Tensor> results = is_output || stays[i] ? std::vector<Tensor>{} : evaluate(node, scope);
      if (results.empty()) {
        edit_subgraphs(node, [&](Graph& subgraph) { changes += fold(subgraph, &scope); });
        scope.others.insert(node.outputs.begin(), node.outputs.end());
        kept.push_back(std::move(node));
        continue;
      }
      size_t next = 0;
      for (const std::string& output : node.outputs) {
        if (output.empty()) continue;
        graph.initializers.push_back({output, results[next], {}, {}});
        scope.constants[output] = std::move(results[next++]);
      }
      ++changes;
    }
    graph.nodes = std::move(kept);
    return changes;
  }

 private:
  /// The outputs of `node`, or nothing where it must or should stay.
  std::vector<Tensor> evaluate(const Node& node, const Scope& scope) const {
    if (node.inputs.empty() || must_stay(node)) return {};
    std::vector<Tensor> inputs;
    int64_t input_bytes = 0;
    for (const std::string& input : node.inputs) {
      if (input.empty()) {
        inputs.emplace_back();
        continue;
      }
      const Tensor* constant = scope.find(input);
      if (constant == nullptr) return {};
      input_bytes += constant->byte_size();
      inputs.push_back(*constant);
    }
    std::vector<Tensor> results;
    try {
      if (foreseen_elements(node, inputs) > std::max(kMostGrowth, input_bytes)) return {};
      results = context_.evaluate(node, model_, inputs);
    } catch (const Error&) {
      // The node may stand in a branch that is never taken; where it does run, the run reports the error.
      return {};
    }
    const auto unnamed = std::count(node.outputs.begin(), node.outputs.end(), std::string());
    if (std::ssize(results) != std::ssize(node.outputs) - unnamed) return {};
    int64_t result_bytes = 0;
    for (const Tensor& result : results) {
      if (!result.defined()) return {};
      result_bytes += result.byte_size();
    }
    return result_bytes - input_bytes > std::max(kMostGrowth, input_bytes) ? std::vector<Tensor>{} : results;
  }

  const Model& model_;
  const PassContext& context_;
};

}  // namespace

int64_t constant_folding(Model& model, const PassContext& context) {
  return context.evaluate ? Folder(model, context).fold(model.graph, nullptr) : 0;
}

}  // namespace kaon::passes
