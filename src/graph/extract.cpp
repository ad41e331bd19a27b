#include "graph/extract.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "graph/verify.h"

namespace kaon {

namespace {

/// What the model says about the values at its top.
class Infos {
 public:
  explicit Infos(const Graph& graph) {
    for (const auto* infos : {&graph.inputs, &graph.outputs, &graph.values}) {
      for (const ValueInfo& info : *infos) infos_.emplace(info.name, &info);
    }
    for (const Initializer& initializer : graph.initializers) constants_.emplace(initializer.name, &initializer);
  }

  const Initializer* constant(const std::string& value) const {
    const auto found = constants_.find(value);
    return found == constants_.end() ? nullptr : found->second;
  }

  ValueInfo operator()(const std::string& value) const {
    if (const auto found = infos_.find(value); found != infos_.end()) return *found->second;
    ValueInfo info;
    info.name = value;
    if (const Initializer* known = constant(value)) {
      info.type = known->tensor.type();
      info.shape.emplace();
      for (const int64_t dim : known->tensor.shape()) info.shape->push_back({dim, {}});
    }
    return info;
  }

 private:
  std::unordered_map<std::string_view, const ValueInfo*> infos_;
  std::unordered_map<std::string_view, const Initializer*> constants_;
};

class Extraction {
 public:
  Extraction(const Model& model, const std::vector<std::string>& inputs)
      : graph_(model.graph), uses_(graph_), infos_(graph_), given_(inputs.begin(), inputs.end()) {
    for (const ValueInfo& input : graph_.inputs) model_inputs_.insert(input.name);
    for (const std::string& input : inputs) require_known(input, "input");
  }

  /// Marks the nodes and constants that `output` is made of.
  void collect(const std::string& output) {
    require_known(output, "output");
    if (uses_.producer(output) < 0) {
      fail(ErrorCode::InvalidInput, "output '" + output + "'", "no node makes it: it is {} of the model",
           model_inputs_.contains(output) ? "an input" : "a constant");
    }
    if (given_.contains(output)) fail(ErrorCode::InvalidInput, "output '" + output + "'", "is among the inputs too");
    std::vector<std::string> open{output};
    while (!open.empty()) {
      const std::string value = std::move(open.back());
      open.pop_back();
      if (!seen_.insert(value).second || given_.contains(value) || infos_.constant(value) != nullptr) continue;
      const int64_t producer = uses_.producer(value);
      if (producer < 0) {
        fail(ErrorCode::InvalidInput, "output '" + output + "'",
             "depends on '{}', an input of the model that the inputs of the part do not cut off", value);
      }
      if (!nodes_.insert(producer).second) continue;
      const Node& node = graph_.nodes[static_cast<size_t>(producer)];
      std::ranges::copy_if(node.inputs, std::back_inserter(open),
                           [](const std::string& name) { return !name.empty(); });
      for (const auto& subgraph : subgraphs(node))
        std::ranges::copy(captured_values(*subgraph), std::back_inserter(open));
    }
  }

  void require_reached(const std::string& input) const {
    if (!seen_.contains(input)) {
      fail(ErrorCode::InvalidInput, "input '" + input + "'", "none of the outputs depends on it");
    }
  }

  void keep_needed(Graph& part) const {
    FreshNames names(graph_);
    std::vector<Node> nodes;
    for (const int64_t index : nodes_) {
      nodes.push_back(graph_.nodes[static_cast<size_t>(index)]);
      // A node may make both a value that is given and one that is needed.
      for (std::string& output : nodes.back().outputs) {
        if (given_.contains(output)) output = names.make(fmt::format("{}_unused", output));
      }
    }
    part.nodes = std::move(nodes);
    const auto unneeded = [&](const std::string& name) { return !seen_.contains(name) || given_.contains(name); };
    std::erase_if(part.initializers, [&](const Initializer& constant) { return unneeded(constant.name); });
    std::erase_if(part.values, [&](const ValueInfo& info) { return unneeded(info.name); });
  }

  ValueInfo info(const std::string& value) const { return infos_(value); }

 private:
  void require_known(const std::string& value, std::string_view role) const {
    if (uses_.producer(value) >= 0 || model_inputs_.contains(value) || infos_.constant(value) != nullptr) return;
    fail(ErrorCode::InvalidInput, fmt::format("{} '{}'", role, value), "the model has no value of this name");
  }

  const Graph& graph_;
  Uses uses_;
  Infos infos_;
  std::unordered_set<std::string> given_;
  std::unordered_set<std::string> model_inputs_;
  std::unordered_set<std::string> seen_;  ///< values that the outputs depend on
  std::set<int64_t> nodes_;
};

}  // namespace

Model extract(const Model& model, const std::vector<std::string>& inputs, const std::vector<std::string>& outputs) {
  if (outputs.empty()) fail(ErrorCode::InvalidInput, "outputs", "at least one is needed");
  Extraction extraction(model, inputs);
  for (const std::string& output : outputs) extraction.collect(output);
  for (const std::string& input : inputs) extraction.require_reached(input);
  Model part = model;
  extraction.keep_needed(part.graph);
  part.graph.inputs.clear();
  part.graph.outputs.clear();
  for (const std::string& input : inputs) part.graph.inputs.push_back(extraction.info(input));
  for (const std::string& output : outputs) part.graph.outputs.push_back(extraction.info(output));
  verify(part);
  return part;
}

}  // namespace kaon
