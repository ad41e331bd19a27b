#include <array>
#include <utility>

#include "graph/upgrade/rules.h"
#include "numerics/half.h"

namespace kaon::upgrade {

namespace {

template <const char* const& kName>
std::vector<Node> drop(Node node, Editor&) {
  node.erase(kName);
  return {node};
}

constexpr const char* kConsumedInputs = "consumed_inputs";
constexpr const char* kOutputSequence = "output_sequence";

/// Puts `value` at input `at`; inputs before it that do not exist are omitted ones.
void put_input(Node& node, size_t at, std::string value) {
  if (node.inputs.size() <= at) node.inputs.resize(at + 1);
  node.inputs[at] = std::move(value);
}

void ints_to_input(Node& node, const std::string& attribute, size_t at, Editor& editor) {
  const std::vector<int64_t> values = node.get_ints(attribute);
  node.erase(attribute);
  if (!values.empty()) put_input(node, at, editor.constant(node, attribute, int64_vector(values)));
}

/// A scalar of the type of the node's first input.
Tensor scalar_like_input(const Node& node, float value, const Editor& editor) {
  switch (const DType type = editor.type_of(node.inputs[0])) {
    case DType::Float32: return Tensor::scalar(value);
    case DType::Float64: return Tensor::scalar(static_cast<double>(value));
    case DType::Float16: {
      const uint16_t bits = float32_to_float16(value);
      return Tensor::copy_bytes(type, {}, std::as_bytes(std::span(&bits, 1)));
    }
    case DType::Undefined: unsupported(node, "the element type of its input is not known");
    default: unsupported(node, "inputs of type " + std::string(name_of(type)) + " were not allowed before");
  }
}

void float_to_input(Node& node, const std::string& attribute, size_t at, Editor& editor) {
  const auto* value = node.get_if<float>(attribute);
  if (value == nullptr) return;
  const Tensor scalar = scalar_like_input(node, *value, editor);
  node.erase(attribute);
  put_input(node, at, editor.constant(node, attribute, scalar));
}

std::vector<Node> cast_to_number(Node node, Editor&) {
  static constexpr std::array<std::pair<std::string_view, DType>, 13> kNames{{{"FLOAT", DType::Float32},
                                                                              {"UINT8", DType::UInt8},
                                                                              {"INT8", DType::Int8},
                                                                              {"UINT16", DType::UInt16},
                                                                              {"INT16", DType::Int16},
                                                                              {"INT32", DType::Int32},
                                                                              {"INT64", DType::Int64},
                                                                              {"STRING", DType::String},
                                                                              {"BOOL", DType::Bool},
                                                                              {"FLOAT16", DType::Float16},
                                                                              {"DOUBLE", DType::Float64},
                                                                              {"UINT32", DType::UInt32},
                                                                              {"UINT64", DType::UInt64}}};
  if (node.get_if<int64_t>("to") != nullptr) return {node};
  const std::string wanted = node.get_string("to", "");
  for (const auto& [name, type] : kNames) {
    if (wanted != name) continue;
    node.set("to", static_cast<int64_t>(type));
    return {node};
  }
  unsupported(node, "its type '" + wanted + "' is not known");
}

std::vector<Node> clip(Node node, Editor& editor) {
  float_to_input(node, "min", 1, editor);
  float_to_input(node, "max", 2, editor);
  return {node};
}

std::vector<Node> concat(Node node, Editor&) {
  if (node.find("axis") == nullptr) node.set("axis", int64_t{1});
  return {node};
}

std::vector<Node> dft(Node node, Editor& editor) {
  const int64_t axis = node.get_int("axis", 1);
  node.erase("axis");
  put_input(node, 2, editor.constant(node, "axis", Tensor::scalar(axis)));
  return {node};
}

std::vector<Node> lp_pool(Node node, Editor&) {
  if (const auto* p = node.get_if<float>("p")) {
    const auto whole = static_cast<int64_t>(*p);
    if (static_cast<float>(whole) != *p) unsupported(node, "its p is not a whole number");
    node.set("p", whole);
  }
  return {node};
}

std::vector<Node> pad_rename(Node node, Editor&) {
  const std::vector<int64_t> pads = node.get_ints("paddings");
  node.erase("paddings");
  node.set("pads", pads);
  return {node};
}

std::vector<Node> pad_inputs(Node node, Editor& editor) {
  const std::vector<int64_t> pads = node.get_ints("pads");
  node.erase("pads");
  put_input(node, 1, editor.constant(node, "pads", int64_vector(pads)));
  if (node.get_float("value", 0.0F) == 0.0F) node.erase("value");
  float_to_input(node, "value", 2, editor);
  return {node};
}

std::vector<Node> axes_to_input(Node node, Editor& editor) {
  ints_to_input(node, "axes", 1, editor);
  return {node};
}

std::vector<Node> reshape(Node node, Editor& editor) {
  const std::vector<int64_t> shape = node.get_ints("shape");
  node.erase("shape");
  node.erase(kConsumedInputs);
  put_input(node, 1, editor.constant(node, "shape", int64_vector(shape)));
  return {node};
}

std::vector<Node> scatter(Node node, Editor&) {
  node.op = "ScatterElements";
  return {node};
}

/// Before version 6 the defaults had fewer digits.
std::vector<Node> selu(Node node, Editor&) {
  if (node.find("alpha") == nullptr) node.set("alpha", 1.6732F);
  if (node.find("gamma") == nullptr) node.set("gamma", 1.0507F);
  node.erase(kConsumedInputs);
  return {node};
}

std::vector<Node> slice(Node node, Editor& editor) {
  const std::vector<int64_t> starts = node.get_ints("starts"), ends = node.get_ints("ends");
  if (starts.size() != ends.size()) unsupported(node, "its starts and ends differ in number");
  node.erase("starts");
  node.erase("ends");
  put_input(node, 1, editor.constant(node, "starts", int64_vector(starts)));
  put_input(node, 2, editor.constant(node, "ends", int64_vector(ends)));
  ints_to_input(node, "axes", 3, editor);
  return {node};
}

/// Version 1 took the lengths as an optional input.
std::vector<Node> split_lengths_to_attribute(Node node, Editor& editor) {
  if (node.inputs.size() < 2 || node.inputs[1].empty()) return {node};
  const Tensor* lengths = editor.find_constant(node.inputs[1]);
  if (lengths == nullptr) unsupported(node, "its lengths are not constant");
  const std::vector<float> values = lengths->to_float();
  node.set("split", std::vector<int64_t>(values.begin(), values.end()));
  node.inputs.resize(1);
  return {node};
}

std::vector<Node> split_lengths_to_input(Node node, Editor& editor) {
  ints_to_input(node, "split", 1, editor);
  return {node};
}

std::vector<Node> split_count(Node node, Editor&) {
  const bool has_lengths = node.inputs.size() > 1 && !node.inputs[1].empty();
  if (!has_lengths) node.set("num_outputs", static_cast<int64_t>(node.outputs.size()));
  return {node};
}

std::vector<Node> top_k(Node node, Editor& editor) {
  const int64_t k = node.get_int("k", 1);
  node.erase("k");
  put_input(node, 1, editor.constant(node, "k", int64_vector({k})));
  return {node};
}

}  // namespace

std::vector<Change> attribute_changes() {
  std::vector<Change> changes{
      {"Cast", 6, cast_to_number},
      {"Clip", 11, clip},
      {"Concat", 4, concat},
      {"DFT", 20, dft},
      {"GlobalLpPool", 2, lp_pool},
      {"LpPool", 2, lp_pool},
      {"Pad", 2, pad_rename},
      {"Pad", 11, pad_inputs},
      {"ReduceSum", 13, axes_to_input},
      {"Reshape", 5, reshape},
      {"Scatter", 11, scatter},
      {"Selu", 6, selu},
      {"Slice", 10, slice},
      {"Split", 2, split_lengths_to_attribute},
      {"Split", 13, split_lengths_to_input},
      {"Split", 18, split_count},
      {"Squeeze", 13, axes_to_input},
      {"Tile", 6, nullptr},
      {"TopK", 10, top_k},
      {"Unsqueeze", 13, axes_to_input},
  };
  for (const std::string_view op : {"ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax",
                                    "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSumSquare"}) {
    changes.push_back({op, 18, axes_to_input});
  }
  for (const std::string_view op : {"Abs",       "Add",         "BatchNormalization",
                                    "Ceil",      "Clip",        "Div",
                                    "Dropout",   "Elu",         "Exp",
                                    "Floor",     "HardSigmoid", "InstanceNormalization",
                                    "LeakyRelu", "Log",         "Max",
                                    "Mean",      "Min",         "Mul",
                                    "Neg",       "PRelu",       "Reciprocal",
                                    "Relu",      "Sigmoid",     "Sqrt",
                                    "Sub",       "Sum",         "Tanh"}) {
    changes.push_back({op, 6, drop<kConsumedInputs>});
  }
  for (const std::string_view op : {"GRU", "LSTM", "RNN"}) changes.push_back({op, 7, drop<kOutputSequence>});
  return changes;
}

}  // namespace kaon::upgrade
