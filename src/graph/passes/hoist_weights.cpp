#include <algorithm>
#include <map>
#include <set>

#include "graph/layer.h"
#include "graph/passes/passes.h"

namespace kaon::passes {
namespace {

bool same_tensor(const Tensor& a, const Tensor& b) {
  return a.type() == b.type() && a.shape() == b.shape() && std::ranges::equal(a.bytes(), b.bytes());
}

void count_definitions(const Graph& graph, std::map<std::string, int>& count) {
  std::set<std::string> defined;
  for (const ValueInfo& input : graph.inputs) defined.insert(input.name);
  for (const Initializer& initializer : graph.initializers) defined.insert(initializer.name);
  for (const Node& node : graph.nodes) {
    defined.insert(node.outputs.begin(), node.outputs.end());
    for (const std::shared_ptr<Graph>& inside : subgraphs(node)) count_definitions(*inside, count);
  }
  for (const std::string& name : defined) ++count[name];
}

void rename(Graph& graph, const std::string& from, const std::string& to) {
  for (Node& node : graph.nodes) {
    std::ranges::replace(node.inputs, from, to);
    edit_subgraphs(node, [&](Graph& inside) { rename(inside, from, to); });
  }
}

class Hoist {
 public:
  explicit Hoist(Graph& graph) : graph_(graph), names_(graph) {
    count_definitions(graph, definitions_);
    for (const ValueInfo& input : graph.inputs) defaults_.insert(input.name);
  }

  int64_t run() {
    for (Node& node : graph_.nodes) edit_subgraphs(node, [&](Graph& inside) { empty(inside); });
    for (Initializer& weight : weights_) graph_.initializers.push_back(std::move(weight));
    return moved_;
  }

 private:
  void empty(Graph& graph) {
    std::vector<std::string> wanted;
    for (const Node& node : graph.nodes) {
      for (const size_t at : weight_inputs(node)) {
        if (at < node.inputs.size()) wanted.push_back(node.inputs[at]);
      }
    }
    for (const std::string& name : wanted) {
      const Initializer* weight = graph.find_initializer(name);
      const auto of_name = [&](const auto& one) { return one.name == name; };
      const bool is_output = std::ranges::any_of(graph.outputs, of_name);
      if (weight == nullptr || weight->tensor.type() != DType::Float32 || is_output) continue;
      const std::string to = place(*weight);
      std::erase_if(graph.initializers, of_name);
      std::erase_if(graph.inputs, of_name);
      if (to != name) rename(graph, name, to);
      ++moved_;
    }
    for (Node& node : graph.nodes) edit_subgraphs(node, [&](Graph& inside) { empty(inside); });
  }

  /// The name under which the outermost graph has it now.
  std::string place(const Initializer& weight) {
    for (const auto* known : {&weights_, &graph_.initializers}) {
      for (const Initializer& other : *known) {
        if (!defaults_.contains(other.name) && same_tensor(other.tensor, weight.tensor)) return other.name;
      }
    }
    // Branches may use one name for different things; outside, one is one.
    const bool clear = definitions_[weight.name] == 1;
    weights_.push_back({clear ? weight.name : names_.make(weight.name), weight.tensor, weight.doc, weight.extra});
    return weights_.back().name;
  }

  Graph& graph_;
  FreshNames names_;
  std::map<std::string, int> definitions_;  ///< graphs that define a name
  std::set<std::string> defaults_;          ///< inputs: an initializer of that name may be overridden
  std::vector<Initializer> weights_;
  int64_t moved_ = 0;
};

}  // namespace

int64_t hoist_weights(Model& model, const PassContext&) { return Hoist(model.graph).run(); }

}  // namespace kaon::passes
