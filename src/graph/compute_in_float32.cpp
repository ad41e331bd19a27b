#include "graph/compute_in_float32.h"

#include <algorithm>
#include <array>
#include <set>

#include "graph/layer.h"
#include "graph/stored.h"

namespace kaon {
namespace {

constexpr auto kFloat32 = static_cast<int64_t>(DType::Float32);

Node cast_node(const std::string& from, const std::string& to, DType type) {
  Node node;
  node.op = "Cast";
  node.name = to;
  node.inputs = {from};
  node.outputs = {to};
  node.set("to", static_cast<int64_t>(type));
  return node;
}

void rename_readers(Graph& graph, const std::string& from, const std::string& to) {
  for (Node& node : graph.nodes) {
    std::ranges::replace(node.inputs, from, to);
    edit_subgraphs(node, [&](Graph& inside) { rename_readers(inside, from, to); });
  }
}

class Widening {
 public:
  explicit Widening(Graph& graph) : graph_(graph), names_(graph) {}

  void run() {
    inside(graph_);
    inputs();
    outputs();
  }

 private:
  /// Constants and types of `graph` and the graphs in it.
  void inside(Graph& graph) {
    for (Node& node : graph.nodes) {
      attributes(node);
      edit_subgraphs(node, [&](Graph& inner) {
        for (auto* infos : {&inner.inputs, &inner.outputs}) widen_types(*infos);
        inside(inner);
      });
    }
    widen_types(graph.values);
    std::set<std::string> defaults;
    for (const ValueInfo& input : graph.inputs) defaults.insert(input.name);
    std::vector<Node> casts;
    for (Initializer& one : graph.initializers) {
      if (!is_half(one.tensor.type())) continue;
      if (one.tensor.rank() < 2 || defaults.contains(one.name)) {
        one.tensor = Tensor::of(one.tensor.shape(), one.tensor.to_float());
      } else {
        behind_casts(graph, one, casts);
      }
    }
    graph.nodes.insert(graph.nodes.begin(), std::make_move_iterator(casts.begin()),
                       std::make_move_iterator(casts.end()));
  }

  /// Looked-up rows are widened, not the table.
  void behind_casts(Graph& graph, Initializer& one, std::vector<Node>& casts) {
    const std::string value = one.name;
    one.name = names_.make(value + "_" + std::string(name_of(one.tensor.type())));
    std::vector<Node> nodes;
    bool others = std::ranges::any_of(graph.outputs, [&](const ValueInfo& output) { return output.name == value; });
    for (Node& node : graph.nodes) {
      const bool looks_up =
          node.op == "Gather" && node.domain.empty() && !node.inputs.empty() && node.inputs[0] == value;
      if (!looks_up) {
        others = others || std::ranges::count(node.inputs, value) > 0 || !subgraphs(node).empty();
        nodes.push_back(std::move(node));
        continue;
      }
      const std::string rows = node.outputs[0];
      node.inputs[0] = one.name;
      node.outputs[0] = names_.make(rows + "_" + std::string(name_of(one.tensor.type())));
      nodes.push_back(std::move(node));
      nodes.push_back(cast_node(nodes.back().outputs[0], rows, DType::Float32));
    }
    graph.nodes = std::move(nodes);
    if (others) casts.push_back(cast_node(one.name, value, DType::Float32));
  }

  static void attributes(Node& node) {
    static constexpr std::array kTypes{"to", "dtype", "output_datatype", "output_dtype"};
    for (const char* name : kTypes) {
      const auto* type = node.get_if<int64_t>(name);
      if (type != nullptr && is_half(static_cast<DType>(*type))) node.set(name, kFloat32);
    }
    const auto* value = node.get_if<Tensor>("value");
    if (value != nullptr && is_half(value->type())) node.set("value", Tensor::of(value->shape(), value->to_float()));
  }

  static void widen_types(std::vector<ValueInfo>& infos) {
    for (ValueInfo& info : infos) {
      if (is_half(info.type)) info.type = DType::Float32;
    }
  }

  void inputs() {
    std::vector<Node> casts;
    for (ValueInfo& input : graph_.inputs) {
      if (!is_half(input.type)) continue;
      if (graph_.find_initializer(input.name) != nullptr) {
        input.type = DType::Float32;
        continue;
      }
      const std::string widened = names_.make(input.name + "_float32");
      rename_readers(graph_, input.name, widened);
      casts.push_back(cast_node(input.name, widened, DType::Float32));
    }
    graph_.nodes.insert(graph_.nodes.begin(), std::make_move_iterator(casts.begin()),
                        std::make_move_iterator(casts.end()));
  }

  void outputs() {
    for (const ValueInfo& output : graph_.outputs) {
      if (!is_half(output.type)) continue;
      const std::string widened = names_.make(output.name + "_float32");
      bool made = false;
      for (Node& node : graph_.nodes) {
        made = made || std::ranges::count(node.outputs, output.name) > 0;
        std::ranges::replace(node.outputs, output.name, widened);
      }
      if (!made) continue;  // an input or a constant, which keeps its type
      rename_readers(graph_, output.name, widened);
      graph_.nodes.push_back(cast_node(widened, output.name, output.type));
    }
  }

  Graph& graph_;
  FreshNames names_;
};

}  // namespace

bool computes_in_half(const Model& model) {
  const Graph& graph = model.graph;
  const auto half = [](const ValueInfo& info) { return is_half(info.type); };
  if (std::ranges::any_of(graph.inputs, half) || std::ranges::any_of(graph.outputs, half)) return true;
  return std::ranges::any_of(graph.nodes, [&](const Node& node) {
    return node.op != "Gather" && std::ranges::any_of(weight_inputs(node), [&](size_t at) {
             const Initializer* weight = at < node.inputs.size() ? graph.find_initializer(node.inputs[at]) : nullptr;
             return weight != nullptr && is_half(weight->tensor.type());
           });
  });
}

void compute_in_float32(Model& model) {
  if (computes_in_half(model)) Widening(model.graph).run();
}

}  // namespace kaon
