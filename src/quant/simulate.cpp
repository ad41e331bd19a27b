#include "quant/simulate.h"

#include <algorithm>

#include "graph/edit.h"
#include "graph/fake_quantize.h"
#include "graph/stored.h"

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
  explicit Simulation(const QuantizedModel& quantized)
      : quantized_(quantized), model_(rounded_model(quantized)), edit_(model_.graph) {}

  Model run() {
    model_.opsets[kKaon] = 1;
    for_each([](const Quantizer& quantizer) { return !quantizer.is_activation(); }, &Simulation::constant);
    // Those that take a value's name come first: the others read what they make.
    for_each([&](const Quantizer& quantizer) { return quantizer.is_activation() && takes_name_of(quantizer); },
             &Simulation::activation);
    for_each([&](const Quantizer& quantizer) { return quantizer.is_activation() && !takes_name_of(quantizer); },
             &Simulation::activation);
    edit_.finish();
    drop_unread_constants(model_.graph);
    return std::move(model_);
  }

 private:
  void for_each(const auto& wanted, void (Simulation::*add)(const Quantizer&)) {
    for (const Quantizer& quantizer : quantized_.quantizers) {
      if (quantizer.enabled && wanted(quantizer)) (this->*add)(quantizer);
    }
  }

  bool takes_name_of(const Quantizer& quantizer) const { return takes_name(quantized_.model.graph, quantizer); }

  /// A weight or bias with its quantized values; the float one stays where others read it.
  void constant(const Quantizer& quantizer) {
    const std::string name = quantized_name(quantizer.tensor, quantizer.id);
    add_constant(name, quantizer.applied(constant_of(quantized_, quantizer.tensor)));
    edit_.redirect(quantizer.readers, name);
    redirect_inside(edit_.graph(), quantizer.inner_readers,
                    [&](std::vector<Node>&) -> const std::string& { return name; });
  }

  void activation(const Quantizer& quantizer) {
    const std::string& value = quantizer.tensor;
    const std::string made = quantized_name(value, quantizer.id);
    std::string scale;
    std::string zero;
    if (!quantizer.params.scale.empty()) {
      scale = made + "|scale";
      const Shape shape{std::ssize(quantizer.params.scale)};
      add_constant(scale, Tensor::of(shape, quantizer.params.scale));
      if (!quantizer.params.zero_point.empty()) {
        zero = made + "|zero_point";
        add_constant(zero, Tensor::of(shape, quantizer.params.zero_point));
      }
    }
    const bool takes_name = takes_name_of(quantizer);
    if (takes_name) {
      edit_.rename(value, raw_name(value));
    } else {
      edit_.redirect(quantizer.readers.empty() ? edit_.readers_of(value) : quantizer.readers, made);
    }
    Node node = make_fake_quantize(quantizer.spec, takes_name ? raw_name(value) : value, takes_name ? value : made,
                                   scale, zero);
    node.name = quantizer.label();
    edit_.insert_behind(value, std::move(node));
  }

  void add_constant(const std::string& name, Tensor tensor) {
    model_.graph.initializers.push_back({name, std::move(tensor), {}, {}});
  }

  const QuantizedModel& quantized_;
  Model model_;
  GraphEdit edit_;
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
