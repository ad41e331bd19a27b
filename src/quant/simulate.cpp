#include "quant/simulate.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "graph/fake_quantize.h"

namespace kaon {
namespace {

bool is_graph_input(const Graph& graph, const std::string& value) {
  return std::any_of(graph.inputs.begin(), graph.inputs.end(),
                     [&](const ValueInfo& input) { return input.name == value; });
}

/// Whether the quantized value takes the place of the float one, name and all.
bool takes_name(const Graph& graph, const Quantizer& quantizer) {
  return quantizer.readers.empty() && !is_graph_input(graph, quantizer.tensor);
}

class Simulation {
 public:
  explicit Simulation(const QuantizedModel& quantized) : quantized_(quantized), model_(rounded_model(quantized)) {}

  Model run() {
    model_.opsets[kKaon] = 1;
    for (const Quantizer& quantizer : quantized_.quantizers) {
      if (!quantizer.enabled) continue;
      if (quantizer.is_activation()) {
        activation(quantizer);
      } else {
        constant(quantizer);
      }
    }
    weave();
    return std::move(model_);
  }

 private:
  Graph& graph() { return model_.graph; }

  void redirect(const Quantizer& quantizer, const std::string& to) {
    for (const Reader& reader : quantizer.readers) {
      graph().nodes[static_cast<size_t>(reader.node)].inputs[static_cast<size_t>(reader.input)] = to;
    }
  }

  /// A weight or bias with its quantized values; the float one stays where others read it.
  void constant(const Quantizer& quantizer) {
    const Tensor& exact = constant_of(quantized_, quantizer.tensor);
    std::vector<float> values(static_cast<size_t>(exact.size()));
    quantizer.apply(exact.as<float>(), values, exact.shape());
    const std::string name = quantized_name(quantizer.tensor, quantizer.id);
    graph().initializers.push_back({name, Tensor::of(exact.shape(), values), {}, {}});
    redirect(quantizer, name);
  }

  void activation(const Quantizer& quantizer) {
    const std::string made = quantized_name(quantizer.tensor, quantizer.id);
    std::string scale;
    std::string zero;
    if (!quantizer.params.scale.empty()) {
      scale = made + "|scale";
      const Shape shape{std::ssize(quantizer.params.scale)};
      graph().initializers.push_back({scale, Tensor::of(shape, quantizer.params.scale), {}, {}});
      if (!quantizer.params.zero_point.empty()) {
        zero = made + "|zero_point";
        graph().initializers.push_back({zero, Tensor::of(shape, quantizer.params.zero_point), {}, {}});
      }
    }
    if (takes_name(quantized_.model.graph, quantizer)) {
      Node node = make_fake_quantize(quantizer.spec, raw_name(quantizer.tensor), quantizer.tensor, scale, zero);
      node.name = quantizer.label();
      renamed_[quantizer.tensor] = std::move(node);
      return;
    }
    Node node = make_fake_quantize(quantizer.spec, quantizer.tensor, made, scale, zero);
    node.name = quantizer.label();
    if (quantizer.readers.empty()) {
      for (Node& reader : graph().nodes)
        std::replace(reader.inputs.begin(), reader.inputs.end(), quantizer.tensor, made);
    } else {
      redirect(quantizer, made);
    }
    added_[quantizer.tensor].push_back(std::move(node));
  }

  /// Puts each new node behind the one that makes what it reads, and drops constants that nobody reads now.
  void weave() {
    std::vector<Node> nodes;
    const auto add_behind = [&](const std::string& value) {
      const auto found = added_.find(value);
      if (found == added_.end()) return;
      for (Node& node : found->second) nodes.push_back(std::move(node));
    };
    for (const ValueInfo& input : graph().inputs) add_behind(input.name);
    for (Node& node : graph().nodes) {
      std::vector<std::string> outputs = node.outputs;
      for (std::string& output : node.outputs) {
        if (renamed_.contains(output)) output = raw_name(output);
      }
      nodes.push_back(std::move(node));
      for (const std::string& output : outputs) {
        const auto found = renamed_.find(output);
        if (found != renamed_.end()) nodes.push_back(std::move(found->second));
        add_behind(output);
      }
    }
    graph().nodes = std::move(nodes);
    const Uses uses(graph());
    std::set<std::string> dropped;
    std::erase_if(graph().initializers, [&](const Initializer& initializer) {
      const bool unread = uses.consumers(initializer.name).empty() && !uses.is_output(initializer.name);
      if (unread) dropped.insert(initializer.name);
      return unread;
    });
    // An initializer may stand among the inputs as their default; alone the input would become a required one.
    std::erase_if(graph().inputs, [&](const ValueInfo& input) { return dropped.contains(input.name); });
  }

  const QuantizedModel& quantized_;
  Model model_;
  std::map<std::string, Node> renamed_;             ///< by value: the quantizer that takes its name
  std::map<std::string, std::vector<Node>> added_;  ///< by value: further quantizers that read it
};

}  // namespace

std::string raw_name(const std::string& value) { return value + "|raw"; }

std::string quantized_name(const std::string& value, int64_t id) { return fmt::format("{}|q{}", value, id); }

std::string simulated_value(const QuantizedModel& quantized, const Quantizer& quantizer) {
  return takes_name(quantized.model.graph, quantizer) ? quantizer.tensor
                                                      : quantized_name(quantizer.tensor, quantizer.id);
}

Model simulate(const QuantizedModel& quantized) { return Simulation(quantized).run(); }

}  // namespace kaon
