#include "graph/upgrade/editor.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "base/error.h"

namespace kaon::upgrade {

namespace {

using Ops = std::unordered_set<std::string_view>;

const Ops kBool{"And",         "Or",    "Xor",  "Not", "Equal", "Greater", "Less", "GreaterOrEqual",
                "LessOrEqual", "IsNaN", "IsInf"};
const Ops kInt64{"Shape", "Size", "NonZero", "ArgMax", "ArgMin"};
const Ops kBroadcast{"Add",
                     "Sub",
                     "Mul",
                     "Div",
                     "Pow",
                     "Mod",
                     "Max",
                     "Min",
                     "Sum",
                     "Mean",
                     "And",
                     "Or",
                     "Xor",
                     "Equal",
                     "Greater",
                     "Less",
                     "GreaterOrEqual",
                     "LessOrEqual",
                     "Where",
                     "PRelu",
                     "MatMul"};
/// One output of the rank and type of the first input.
const Ops kLikeInput{"Abs",
                     "Acos",
                     "Asin",
                     "Atan",
                     "AveragePool",
                     "BatchNormalization",
                     "Cast",
                     "Ceil",
                     "Clip",
                     "Concat",
                     "Conv",
                     "ConvTranspose",
                     "Cos",
                     "DepthToSpace",
                     "Dropout",
                     "Elu",
                     "Erf",
                     "Exp",
                     "Floor",
                     "GlobalAveragePool",
                     "GlobalLpPool",
                     "GlobalMaxPool",
                     "HardSigmoid",
                     "Hardmax",
                     "Identity",
                     "InstanceNormalization",
                     "LRN",
                     "LeakyRelu",
                     "Log",
                     "LogSoftmax",
                     "LpNormalization",
                     "LpPool",
                     "MaxPool",
                     "MeanVarianceNormalization",
                     "Neg",
                     "Not",
                     "Pad",
                     "Reciprocal",
                     "Relu",
                     "Resize",
                     "Selu",
                     "Sigmoid",
                     "Sign",
                     "Sin",
                     "Slice",
                     "Softmax",
                     "Softplus",
                     "Softsign",
                     "SpaceToDepth",
                     "Split",
                     "Sqrt",
                     "Tan",
                     "Tanh",
                     "ThresholdedRelu",
                     "Tile",
                     "Transpose",
                     "Upsample",
                     "CumSum"};
/// Of the type of the first input, though not of its rank.
const Ops kTypeLikeInput{"Reshape",         "Flatten",   "Squeeze", "Unsqueeze", "Gather", "GatherElements", "GatherND",
                         "Expand",          "Gemm",      "Einsum",  "Compress",  "TopK",   "Range",          "Scatter",
                         "ScatterElements", "ScatterND", "LSTM",    "GRU",       "RNN"};

}  // namespace

void unsupported(const Node& node, const std::string& reason) {
  fail(ErrorCode::Unsupported, node.label(), "cannot be brought to a newer opset: {}", reason);
}

Tensor int64_vector(const std::vector<int64_t>& values) { return Tensor::of({std::ssize(values)}, values); }

Editor::Editor(Graph& graph, Shared& shared, const Editor* outer)
    : shared_(shared), outer_(outer), edit_(graph, shared.names) {
  const auto note = [&](const std::vector<ValueInfo>& infos) {
    for (const ValueInfo& info : infos) {
      Known& known = known_[info.name];
      known.type = info.type;
      if (info.shape) known.rank = std::ssize(*info.shape);
    }
  };
  note(graph.inputs);
  note(graph.values);
  note(graph.outputs);
  for (const Initializer& initializer : graph.initializers) {
    tensors_[initializer.name] = initializer.tensor;
    known_[initializer.name] = {initializer.tensor.type(), initializer.tensor.rank()};
  }
  for (const Node& node : graph.nodes) {
    if (const auto* tensor = node.get_if<Tensor>("value");
        tensor != nullptr && node.op == "Constant" && !node.outputs.empty()) {
      tensors_[node.outputs[0]] = *tensor;
      known_[node.outputs[0]] = {tensor->type(), tensor->rank()};
    } else {
      learn(node);
    }
  }
}

std::string Editor::name(const Node& node, const std::string& suffix) {
  return edit_.fresh((node.outputs.empty() ? node.name : node.outputs[0]) + "_" + suffix);
}

std::string Editor::constant(const Node& node, const std::string& suffix, const Tensor& tensor) {
  return edit_.own_constant((node.outputs.empty() ? node.name : node.outputs[0]) + "_" + suffix, tensor);
}

Node Editor::helper(const Node& node, const std::string& suffix, std::string op, std::vector<std::string> inputs) {
  Node made;
  made.name = node.name.empty() ? "" : node.name + "_" + suffix;
  made.op = std::move(op);
  made.inputs = std::move(inputs);
  made.outputs = {name(node, suffix)};
  return made;
}

const Tensor* Editor::find_constant(const std::string& value) const {
  for (const Editor* editor = this; editor != nullptr; editor = editor->outer_) {
    const auto it = editor->tensors_.find(value);
    if (it != editor->tensors_.end()) return &it->second;
    if (editor->known_.contains(value)) return nullptr;
  }
  return nullptr;
}

bool Editor::is_read(const std::string& value) const {
  return !value.empty() && (edit_.uses().is_output(value) || !edit_.uses().consumers(value).empty());
}

const Editor::Known* Editor::find(const std::string& value) const {
  for (const Editor* editor = this; editor != nullptr; editor = editor->outer_) {
    const auto it = editor->known_.find(value);
    if (it != editor->known_.end()) return &it->second;
  }
  return nullptr;
}

DType Editor::type_of(const std::string& value) const {
  const Known* known = find(value);
  return known == nullptr ? DType::Undefined : known->type;
}

std::optional<int64_t> Editor::rank_of(const std::string& value) const {
  const Known* known = find(value);
  return known == nullptr ? std::nullopt : known->rank;
}

void Editor::learn(const Node& node) {
  const DType type = type_after(node);
  const std::optional<int64_t> rank = rank_after(node);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    Known& known = known_[node.outputs[i]];
    if (i > 0 && node.op != "Split") continue;
    if (known.type == DType::Undefined) known.type = type;
    if (!known.rank) known.rank = rank;
  }
}

DType Editor::type_after(const Node& node) const {
  if (!node.domain.empty()) return DType::Undefined;
  if (kBool.contains(node.op)) return DType::Bool;
  if (kInt64.contains(node.op)) return DType::Int64;
  if (node.op == "Cast") return static_cast<DType>(node.get_int("to", 0));
  if (node.op == "Where") return node.inputs.size() > 1 ? type_of(node.inputs[1]) : DType::Undefined;
  if (node.op == "DequantizeLinear") return node.inputs.size() > 1 ? type_of(node.inputs[1]) : DType::Undefined;
  if (node.op == "ConstantOfShape") {
    const auto* value = node.get_if<Tensor>("value");
    return value == nullptr ? DType::Float32 : value->type();
  }
  if (node.op == "If") {
    const std::vector<std::shared_ptr<Graph>> branches = subgraphs(node);
    return branches.empty() || branches[0]->outputs.empty() ? DType::Undefined : branches[0]->outputs[0].type;
  }
  const bool like_input = kLikeInput.contains(node.op) || kTypeLikeInput.contains(node.op) ||
                          kBroadcast.contains(node.op) || node.op.starts_with("Reduce");
  return like_input && !node.inputs.empty() ? type_of(node.inputs[0]) : DType::Undefined;
}

std::optional<int64_t> Editor::rank_after(const Node& node) const {
  if (!node.domain.empty()) return std::nullopt;
  if (node.op == "Flatten" || node.op == "Gemm") return 2;
  if (node.op == "Shape") return 1;
  if (node.inputs.empty()) return std::nullopt;
  const std::optional<int64_t> rank = rank_of(node.inputs[0]);
  if (kLikeInput.contains(node.op)) return rank;
  if (kBroadcast.contains(node.op)) {
    int64_t most = 0;
    for (const std::string& input : node.inputs) {
      const std::optional<int64_t> other = rank_of(input);
      if (!other) return std::nullopt;
      most = std::max(most, *other);
    }
    return most;
  }
  const auto count_of = [&](const char* attribute, size_t input) -> std::optional<int64_t> {
    if (node.find(attribute) != nullptr) return std::ssize(node.get_ints(attribute));
    if (node.inputs.size() <= input || node.inputs[input].empty()) return 0;
    const Tensor* tensor = find_constant(node.inputs[input]);
    return tensor == nullptr ? std::nullopt : std::optional<int64_t>(tensor->size());
  };
  if (node.op == "Reshape") return count_of("shape", 1);
  if (!rank) return std::nullopt;
  if (node.op == "Gather" && node.inputs.size() > 1) {
    const std::optional<int64_t> indices = rank_of(node.inputs[1]);
    return indices ? std::optional<int64_t>(*rank + *indices - 1) : std::nullopt;
  }
  if (node.op == "ArgMax" || node.op == "ArgMin") return *rank - (node.get_int("keepdims", 1) != 0 ? 0 : 1);
  const std::optional<int64_t> axes = count_of("axes", 1);
  if (!axes) return std::nullopt;
  if (node.op == "Unsqueeze") return *rank + *axes;
  if (node.op == "Squeeze") return *axes == 0 ? std::nullopt : std::optional<int64_t>(*rank - *axes);
  if (node.op.starts_with("Reduce")) {
    if (node.get_int("keepdims", 1) != 0) return rank;
    return *axes == 0 ? 0 : *rank - *axes;
  }
  return std::nullopt;
}

}  // namespace kaon::upgrade
