#include "mutations.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "engine/op_facts.h"

namespace kaon {

namespace {

constexpr std::array kTypes{DType::Float32, DType::Float64,     DType::Float16, DType::BFloat16,  DType::Int8,
                            DType::UInt8,   DType::Int16,       DType::UInt16,  DType::Int32,     DType::UInt32,
                            DType::Int64,   DType::UInt64,      DType::Bool,    DType::Complex64, DType::UInt4,
                            DType::Int4,    DType::Float8E4M3FN};

/// A tensor of `count` elements of zeros and its bytes to fill.
std::vector<std::byte> zeros(DType type, int64_t count) {
  return std::vector<std::byte>(static_cast<size_t>(stored_bytes(type, count)));
}

ValueInfo* find_info(std::vector<ValueInfo>& infos, const std::string& name) {
  const auto it = std::ranges::find_if(infos, [&](const ValueInfo& info) { return info.name == name; });
  return it == infos.end() ? nullptr : &*it;
}

/// Attributes hold any number, the largest too.
int64_t wrapping_sum(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

}  // namespace

int64_t Mutator::number() {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr std::array<int64_t, 10> kSmall{0, 1, -1, 2, -2, 3, 5, 7, 16, -16};
  constexpr std::array<int64_t, 14> kLarge{127,
                                           1000,
                                           -1000,
                                           65536,
                                           1 << 20,
                                           INT32_MAX,
                                           INT32_MIN,
                                           int64_t{1} << 31,
                                           int64_t{1} << 32,
                                           int64_t{1} << 40,
                                           kMost,
                                           -kMost,
                                           kMost - 1,
                                           std::numeric_limits<int64_t>::min()};
  return loops_ || chance(2) ? kSmall[below(kSmall.size())] : kLarge[below(kLarge.size())];
}

float Mutator::real() {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr std::array<float, 14> kReals{
      0, 1, -1, 0.5F, 2, 1e-30F, 1e30F, kInf, -kInf, 1e-6F, 1000, -3.7F, std::numeric_limits<float>::quiet_NaN(), 1e9F};
  return kReals[below(kReals.size())];
}

std::string Mutator::change_attribute(Node& node) {
  if (node.attributes.empty()) return {};
  Attribute& attribute = any(node.attributes);
  const std::string name = attribute.name;
  if (chance(10)) {
    node.erase(name);
    return "without attribute " + name;
  }
  if (auto* value = std::get_if<int64_t>(&attribute.value)) {
    *value = chance(3) ? wrapping_sum(*value, chance(2) ? 1 : -1) : number();
    return fmt::format("{} = {}", name, *value);
  }
  if (auto* values = std::get_if<std::vector<int64_t>>(&attribute.value)) {
    if (values->empty() || chance(4)) {
      values->push_back(number());
    } else if (chance(4)) {
      values->pop_back();
    } else {
      any(*values) = number();
    }
    return fmt::format("{} = {}", name, to_string(*values));
  }
  if (auto* value = std::get_if<float>(&attribute.value)) {
    *value = real();
    return fmt::format("{} = {}", name, *value);
  }
  if (auto* values = std::get_if<std::vector<float>>(&attribute.value)) {
    if (values->empty() || chance(3)) {
      values->push_back(real());
    } else {
      any(*values) = real();
    }
    return name + ": other numbers";
  }
  if (auto* text = std::get_if<std::string>(&attribute.value)) {
    static const std::vector<std::string> kWords{
        "",    "linear",  "nearest", "cubic",      "constant",  "reflect",    "edge",      "wrap",
        "sum", "mean",    "none",    "SAME_UPPER", "VALID",     "SAME_LOWER", "max",       "add",
        "mul", "forward", "reverse", "LEFT",       "ij,jk->ik", "...",        "half_pixel"};
    *text = kWords[below(kWords.size())];
    return fmt::format("{} = '{}'", name, *text);
  }
  if (auto* tensor = std::get_if<Tensor>(&attribute.value)) {
    *tensor = chance(2) ? reshaped(*tensor) : with_other_values(*tensor);
    return name + ": another tensor";
  }
  attribute.value = number();
  return name + " becomes a number";
}

std::string Mutator::change_wiring(Graph& graph, Node& node) {
  switch (below(6)) {
    case 0:
      if (node.inputs.empty()) return {};
      node.inputs.pop_back();
      return "one input less";
    case 1:
      if (node.inputs.empty()) return {};
      any(node.inputs).clear();
      return "an input left out";
    case 2: {
      if (graph.inputs.empty()) return {};
      node.inputs.push_back(any(graph.inputs).name);
      return "one input more";
    }
    case 3:
      if (node.inputs.size() < 2) return {};
      std::swap(any(node.inputs), any(node.inputs));
      return "inputs swapped";
    case 4:
      if (node.outputs.empty()) return {};
      any(node.outputs).clear();
      return "an output left out";
    default: {
      node.outputs.push_back("one_more");
      ValueInfo info;
      info.name = "one_more";
      graph.outputs.push_back(info);
      return "one output more";
    }
  }
}

Tensor Mutator::reshaped(const Tensor& tensor) {
  if (tensor.type() == DType::String) return tensor;
  Shape shape = tensor.shape();
  switch (below(5)) {
    case 0: shape.insert(shape.begin() + static_cast<int64_t>(below(shape.size() + 1)), 1); break;
    case 1:
      if (!shape.empty()) shape.erase(shape.begin() + static_cast<int64_t>(below(shape.size())));
      break;
    case 2:
      if (!shape.empty()) any(shape) = 0;
      break;
    case 3:
      if (!shape.empty()) any(shape) += 1;
      break;
    default:
      if (shape.size() > 1) std::swap(any(shape), any(shape));
  }
  std::vector<std::byte> bytes = zeros(tensor.type(), element_count(shape));
  std::copy_n(tensor.bytes().begin(), std::min(bytes.size(), tensor.bytes().size()), bytes.begin());
  return Tensor::copy_bytes(tensor.type(), shape, bytes);
}

Tensor Mutator::retyped(const Tensor& tensor, DType type) {
  std::vector<std::byte> bytes = zeros(type, tensor.size());
  if (tensor.type() != DType::String && chance(2)) {  // else zeros
    std::copy_n(tensor.bytes().begin(), std::min(bytes.size(), tensor.bytes().size()), bytes.begin());
    if (type == DType::Bool) std::ranges::transform(bytes, bytes.begin(), [](std::byte b) { return b & std::byte{1}; });
  }
  return Tensor::copy_bytes(type, tensor.shape(), bytes);
}

Tensor Mutator::with_other_values(const Tensor& tensor) {
  if (tensor.size() == 0) return tensor;
  if (tensor.type() == DType::Int64) {
    std::vector<int64_t> values = tensor.to_int64();
    any(values) = number();
    return Tensor::of<int64_t>(tensor.shape(), values);
  }
  if (tensor.type() == DType::Int32) {
    std::vector<int32_t> values(tensor.as<int32_t>().begin(), tensor.as<int32_t>().end());
    any(values) = static_cast<int32_t>(number());
    return Tensor::of<int32_t>(tensor.shape(), values);
  }
  if (tensor.type() == DType::Float32) {
    std::vector<float> values(tensor.as<float>().begin(), tensor.as<float>().end());
    any(values) = real();
    return Tensor::of<float>(tensor.shape(), values);
  }
  return tensor;
}

std::string Mutator::change_tensor(Trial& trial) {
  if (trial.inputs.empty()) return {};
  auto it = trial.inputs.begin();
  std::advance(it, static_cast<int64_t>(below(trial.inputs.size())));
  auto& [name, tensor] = *it;
  const uint64_t what = below(3);
  tensor = what == 0   ? retyped(tensor, kTypes[below(kTypes.size())])
           : what == 1 ? reshaped(tensor)
                       : with_other_values(tensor);
  if (ValueInfo* info = find_info(trial.model.graph.inputs, name)) {
    info->type = tensor.type();
    info->shape.reset();
  }
  return fmt::format("{}: {} {}{}", name, name_of(tensor.type()), to_string(tensor.shape()),
                     what == 2 ? " with other values" : "");
}

std::string Mutator::change_operator(Trial& trial, Node& node) {
  if (chance(2)) {
    trial.model.opsets[""] = 1 + static_cast<int64_t>(below(22));
    return fmt::format("opset {}", trial.model.opsets[""]);
  }
  std::vector<std::pair<std::string, std::string>> all = operator_names();
  const auto [domain, name] = any(all);
  if (name == "Loop" || name == "Scan" || name == "If") return {};
  node.domain = domain;
  node.op = name;
  if (!domain.empty()) trial.model.opsets[domain] = 1;
  return "operator " + name;
}

/// An input that becomes a constant is known when the plan is made.
std::string Mutator::freeze_input(Trial& trial) {
  std::vector<ValueInfo>& infos = trial.model.graph.inputs;
  if (infos.empty()) return {};
  const size_t at = below(infos.size());
  const auto found = trial.inputs.find(infos[at].name);
  if (found == trial.inputs.end()) return {};
  trial.model.graph.initializers.push_back({found->first, found->second, {}, {}});
  trial.inputs.erase(found);
  infos.erase(infos.begin() + static_cast<int64_t>(at));
  return "a constant " + trial.model.graph.initializers.back().name;
}

std::string Mutator::mutate(Trial& trial) {
  Graph& graph = trial.model.graph;
  if (graph.nodes.empty()) return "nothing";
  loops_ = std::ranges::any_of(graph.nodes, [](const Node& node) { return !subgraphs(node).empty(); });
  std::string told;
  const uint64_t changes = 1 + below(3);
  for (uint64_t i = 0; i < changes; ++i) {
    Node& node = any(graph.nodes);
    const uint64_t kind = below(20);
    const std::string change = kind < 7    ? change_attribute(node)
                               : kind < 13 ? change_tensor(trial)
                               : kind < 16 ? change_wiring(graph, node)
                               : kind < 18 ? freeze_input(trial)
                                           : change_operator(trial, node);
    if (!change.empty()) told += (told.empty() ? "" : ", ") + change;
  }
  return told.empty() ? "nothing" : told;
}

}  // namespace kaon
