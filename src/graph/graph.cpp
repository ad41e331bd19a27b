#include "graph/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace kaon {

const Attribute* Node::find(std::string_view attribute) const {
  const auto it =
      std::find_if(attributes.begin(), attributes.end(), [&](const Attribute& a) { return a.name == attribute; });
  return it == attributes.end() ? nullptr : &*it;
}

int64_t Node::get_int(std::string_view attribute, int64_t otherwise) const {
  const auto* value = get_if<int64_t>(attribute);
  return value == nullptr ? otherwise : *value;
}

float Node::get_float(std::string_view attribute, float otherwise) const {
  const auto* value = get_if<float>(attribute);
  return value == nullptr ? otherwise : *value;
}

std::string Node::get_string(std::string_view attribute, std::string otherwise) const {
  const auto* value = get_if<std::string>(attribute);
  if (value != nullptr) return *value;
  return otherwise;
}

std::vector<int64_t> Node::get_ints(std::string_view attribute, std::vector<int64_t> otherwise) const {
  const auto* value = get_if<std::vector<int64_t>>(attribute);
  if (value != nullptr) return *value;
  return otherwise;
}

void Node::set(std::string attribute, AttributeValue value) {
  for (Attribute& existing : attributes) {
    if (existing.name == attribute) {
      existing.value = std::move(value);
      return;
    }
  }
  attributes.push_back({std::move(attribute), std::move(value), {}});
}

void Node::erase(std::string_view attribute) {
  std::erase_if(attributes, [&](const Attribute& a) { return a.name == attribute; });
}

std::string Node::label() const {
  const std::string& known_by = !name.empty() || outputs.empty() ? name : outputs[0];
  return fmt::format("{}{}{} '{}'", domain, domain.empty() ? "" : ".", op, known_by);
}

const Initializer* Graph::find_initializer(std::string_view value) const {
  const auto it =
      std::find_if(initializers.begin(), initializers.end(), [&](const Initializer& i) { return i.name == value; });
  return it == initializers.end() ? nullptr : &*it;
}

Initializer* Graph::find_initializer(std::string_view value) {
  return const_cast<Initializer*>(std::as_const(*this).find_initializer(value));
}

std::vector<ValueInfo> Graph::required_inputs() const {
  std::set<std::string_view> given;
  for (const Initializer& initializer : initializers) given.insert(initializer.name);
  std::vector<ValueInfo> required;
  for (const ValueInfo& input : inputs) {
    if (!given.contains(input.name)) required.push_back(input);
  }
  return required;
}

std::string Graph::fresh_name(const std::string& wanted) const { return FreshNames(*this).make(wanted); }

FreshNames::FreshNames(const Graph& graph) { collect(graph); }

void FreshNames::collect(const Graph& graph) {
  for (const ValueInfo& input : graph.inputs) taken_.insert(input.name);
  for (const ValueInfo& output : graph.outputs) taken_.insert(output.name);
  for (const Initializer& initializer : graph.initializers) taken_.insert(initializer.name);
  for (const Node& node : graph.nodes) {
    taken_.insert(node.inputs.begin(), node.inputs.end());
    taken_.insert(node.outputs.begin(), node.outputs.end());
    for (const auto& subgraph : subgraphs(node)) collect(*subgraph);
  }
}

std::string FreshNames::make(const std::string& wanted) {
  std::string name = wanted;
  for (int i = 1; !taken_.insert(name).second; ++i) name = fmt::format("{}_{}", wanted, i);
  return name;
}

int64_t Model::opset() const {
  const auto it = opsets.find("");
  return it == opsets.end() ? 1 : it->second;
}

Uses::Uses(const Graph& graph) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const auto index = static_cast<int64_t>(i);
    const auto reads = [&](const std::string& value) {
      std::vector<int64_t>& readers = consumers_[value];
      if (readers.empty() || readers.back() != index) readers.push_back(index);
    };
    for (const std::string& input : node.inputs) {
      if (!input.empty()) reads(input);
    }
    for (const auto& subgraph : subgraphs(node)) {
      for (const std::string& value : captured_values(*subgraph)) reads(value);
    }
    for (const std::string& output : node.outputs) {
      if (!output.empty()) producers_.emplace(output, index);
    }
  }
  for (const ValueInfo& output : graph.outputs) outputs_.insert(output.name);
}

int64_t Uses::producer(std::string_view value) const {
  const auto it = producers_.find(value);
  return it == producers_.end() ? -1 : it->second;
}

const std::vector<int64_t>& Uses::consumers(std::string_view value) const {
  static const std::vector<int64_t> kNone;
  const auto it = consumers_.find(value);
  return it == consumers_.end() ? kNone : it->second;
}

bool Uses::is_output(std::string_view value) const { return outputs_.contains(value); }

std::vector<std::shared_ptr<Graph>> subgraphs(const Node& node) {
  std::vector<std::shared_ptr<Graph>> found;
  for (const Attribute& attribute : node.attributes) {
    if (const auto* one = std::get_if<std::shared_ptr<Graph>>(&attribute.value)) found.push_back(*one);
    if (const auto* many = std::get_if<std::vector<std::shared_ptr<Graph>>>(&attribute.value)) {
      found.insert(found.end(), many->begin(), many->end());
    }
  }
  return found;
}

void edit_subgraphs(Node& node, const std::function<void(Graph&)>& edit) {
  const auto replace = [&](std::shared_ptr<Graph>& graph) {
    graph = std::make_shared<Graph>(*graph);
    edit(*graph);
  };
  for (Attribute& attribute : node.attributes) {
    if (auto* one = std::get_if<std::shared_ptr<Graph>>(&attribute.value)) replace(*one);
    if (auto* many = std::get_if<std::vector<std::shared_ptr<Graph>>>(&attribute.value)) {
      for (std::shared_ptr<Graph>& graph : *many) replace(graph);
    }
  }
}

std::vector<std::string> captured_values(const Graph& graph) {
  std::set<std::string> made, captured;
  for (const ValueInfo& input : graph.inputs) made.insert(input.name);
  for (const Initializer& initializer : graph.initializers) made.insert(initializer.name);
  const auto reads = [&](const std::string& value) {
    if (!value.empty() && !made.contains(value)) captured.insert(value);
  };
  for (const Node& node : graph.nodes) {
    for (const std::string& input : node.inputs) reads(input);
    for (const auto& subgraph : subgraphs(node)) {
      for (const std::string& value : captured_values(*subgraph)) reads(value);
    }
    made.insert(node.outputs.begin(), node.outputs.end());
  }
  for (const ValueInfo& output : graph.outputs) reads(output.name);
  return {captured.begin(), captured.end()};
}

}  // namespace kaon
