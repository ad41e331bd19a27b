#include "quant/placement.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <unordered_map>

#include "base/error.h"
#include "graph/finite.h"
#include "graph/stored.h"
#include "quant/flow.h"
#include "quant/rules.h"

namespace kaon {
namespace {

constexpr int64_t kFewestGroupChannels = 16;  ///< below it, groups along K cost more than they save

class Placement {
 public:
  Placement(Model model, const Config& config) {
    result_.model = std::move(model);
    result_.config = config;
    result_.layers = kaon::layers(result_.model.graph);
  }

  QuantizedModel run() {
    if (result_.layers.empty()) {
      fail(ErrorCode::InvalidInput, "", "this model has no layer that Kaon quantizes ({} with a constant weight)",
           fmt::join(layer_types(), ", "));
    }
    const ValueFlow flow(graph());
    const Rules rules(result_.config, result_.layers, operators(flow));
    for (const Layer& layer : result_.layers) {
      Ruling ruling = rules.of(layer);
      rules_.push_back(adapted(layer, std::move(ruling.rule)));
      origins_.push_back(std::move(ruling.origin));
    }
    place_outputs(flow, rules);
    for (size_t i = 0; i < rules_.size(); ++i) {
      place_input(i);
      place_weight(result_.layers[i], rules_[i]);
      place_bias(result_.layers[i], rules_[i]);
    }
    if (result_.quantizers.empty()) {
      fail(ErrorCode::InvalidConfig, result_.config.scheme, "the config leaves no layer of this model to quantize{}",
           result_.skipped.empty() ? "" : ": " + result_.skipped.front().layer + " " + result_.skipped.front().reason);
    }
    sort_and_number();
    list_what_stays_float();
    return std::move(result_);
  }

 private:
  const Graph& graph() const { return result_.model.graph; }
  const Node& node(int64_t index) const { return graph().nodes[static_cast<size_t>(index)]; }
  const Node& node(const std::string& id) const { return node_by_id(graph(), id); }

  void skip(const Layer& layer, std::string reason) { result_.skipped.push_back({layer.name, std::move(reason)}); }

  /// `rule` as far as `layer` can follow it; what it cannot is noted in `skipped`.
  LayerRule adapted(const Layer& layer, LayerRule rule) {
    if (!rule.weight.spec && !rule.input.spec && !rule.output.spec && !rule.bias.spec) return rule;
    const Initializer* weight = find_stored(graph(), layer.weight);
    // Behind its Cast a 16-bit weight is as good as a float32 one.
    if (weight == nullptr || (weight->name == layer.weight && weight->tensor.type() != DType::Float32)) {
      skip(layer, weight == nullptr
                      ? "stays as it is: its weight is computed, not stored"
                      : fmt::format("stays as it is: its weight is {}, not float32", name_of(weight->tensor.type())));
      return {};
    }
    if (layer.op == "Gather" && first_non_finite(weight->tensor) >= 0) {
      skip(layer, "stays as it is: the table holds NaN or Inf");
      return {};
    }
    if (layer.op == "Gather" || is_recurrent(layer) || layer.inner != nullptr) {
      const bool asked = layer.op != "Gather" && (rule.input.spec || rule.output.spec);
      if (asked && rule.weight.spec) {
        skip(layer, layer.inner != nullptr
                        ? "input and output stay float: inside If, Loop and Scan only weights are quantized"
                        : "input and output stay float: of recurrent layers only weights are quantized");
      }
      rule.input = rule.output = rule.bias = {};
    }
    if (!rule.weight.spec) return rule;
    if (left_rows_refused(layer, rule)) {
      rule.weight.spec->granularity = Granularity::PerTensor;
      skip(layer, "weight has one scale: ONNX Runtime's integer product takes no scale a row of its left matrix");
    }
    const Spec spec = *rule.weight.spec;
    const bool in_groups = spec.granularity == Granularity::PerGroup || format(spec.format).kind == FormatKind::Block;
    const int64_t channels = layer.op == "Conv" ? layer.weight_shape[1] : layer.weight_shape[0];
    const int64_t group = is_convolution(layer) ? node_of(graph(), layer).get_int("group", 1) : 1;
    const int64_t per_group = layer.op == "ConvTranspose" ? channels / std::max<int64_t>(group, 1) : channels;
    if (in_groups && is_convolution(layer) && per_group < kFewestGroupChannels) {
      Spec fallback;
      fallback.granularity = Granularity::PerChannel;
      rule.weight = fallback;
      const bool input_in_blocks = rule.input.spec && format(rule.input.spec->format).kind == FormatKind::Block;
      if (input_in_blocks) rule.input = {};
      skip(layer, fmt::format("weight is int8 per channel{}: {} input channels per group are too few for {}",
                              input_in_blocks ? ", input float" : "", per_group, spec.format));
    }
    return rule;
  }

  /// A weight on the left with a scale a channel, where weight and input are 8-bit integers of one kind: ONNX Runtime
  /// makes an integer product of these, and then refuses it.
  static bool left_rows_refused(const Layer& layer, const LayerRule& rule) {
    if (is_convolution(layer) || layer.weight_input != 0 || !rule.input.spec || rule.input.spec->dynamic) return false;
    const Format &weight = format(rule.weight.spec->format), &input = format(rule.input.spec->format);
    const bool integers = weight.kind == FormatKind::Integer && input.kind == FormatKind::Integer;
    return rule.weight.spec->granularity == Granularity::PerChannel && integers && weight.bits == 8 &&
           input.bits == 8 && weight.is_signed == input.is_signed;
  }

  Quantizer& add(const std::string& tensor, Slot kind, const Spec& spec, int64_t usual_axis) {
    Quantizer quantizer;
    quantizer.tensor = tensor;
    quantizer.kind = kind;
    quantizer.spec = spec.tensor_spec(usual_axis);
    quantizer.observer = spec.observer;
    quantizer.dynamic = spec.dynamic;
    result_.quantizers.push_back(std::move(quantizer));
    return result_.quantizers.back();
  }

  /// Operators between layers that have an output of their own.
  std::vector<Subject> operators(const ValueFlow& flow) const {
    std::set<std::string> of_layers;
    for (const Layer& layer : result_.layers) of_layers.insert({layer.node, layer.bias_node});
    std::vector<Subject> found;
    for (int64_t i = 0; i < std::ssize(graph().nodes); ++i) {
      if (of_layers.contains(node_id(node(i))) || flow.kind(i) != FlowKind::Computes) continue;
      found.push_back({plain_name(node(i)), node(i).op});
    }
    return found;
  }

  /// Outputs of layers, and what flows from them through operators that are no layers.
  void place_outputs(const ValueFlow& flow, const Rules& rules) {
    std::map<std::string, size_t> layer_of;  // by the node that makes the layer's output
    for (size_t i = 0; i < result_.layers.size(); ++i) {
      if (!result_.layers[i].output.empty()) layer_of[result_.layers[i].last_node()] = i;
    }
    for (int64_t index = 0; index < std::ssize(graph().nodes); ++index) {
      const auto found = layer_of.find(node_id(node(index)));
      if (found == layer_of.end()) {
        follow(flow, rules, index);
      } else if (const SlotRule& rule = rules_[found->second].output; rule.spec) {
        const Layer& layer = result_.layers[found->second];
        quantize_value(flow.covered_output(layer.output), {*rule.spec, origins_[found->second].at(Slot::Output)},
                       output_axis(layer), layer.name);
      }
    }
  }

  /// How a value that all readers see is quantized by the rules of what makes it.
  struct Made {
    Spec spec;
    Origin origin;
  };

  void follow(const ValueFlow& flow, const Rules& rules, int64_t index) {
    const FlowKind kind = flow.kind(index);
    if (kind == FlowKind::Other) return;
    const Node& here = node(index);
    if (quantizer_of_.contains(here.outputs[0])) return;  // a Relu that a layer's quantizer covers
    if (kind == FlowKind::Moves) {
      move(here);
    } else {
      compute(flow, rules, index);
    }
  }

  void move(const Node& here) {
    const auto source = quantizer_of_.find(here.inputs[0]);
    if (source == quantizer_of_.end() || !has_one_scale(result_.quantizers[source->second])) return;
    const size_t count = here.op == "Split" ? here.outputs.size() : 1;  // MaxPool's second output counts positions
    for (const std::string& made : std::span(here.outputs).first(count)) {
      result_.quantizers[source->second].moved.push_back(made);
      quantizer_of_.emplace(made, source->second);
    }
  }

  void compute(const ValueFlow& flow, const Rules& rules, int64_t index) {
    const Node& here = node(index);
    const std::string name = plain_name(here);
    const Made* first = nullptr;
    const Made* other = nullptr;  // quantized in another way
    for (const std::string& input : flow.data_inputs(index)) {
      const auto source = quantizer_of_.find(input);
      if (source == quantizer_of_.end() || !has_one_scale(result_.quantizers[source->second])) {
        if (rules.of(Subject{name, here.op}, Spec(), nullptr).rule.output.spec) {
          result_.skipped.push_back({name, "output stays float: not all of what it reads is quantized with one scale"});
        }
        return;
      }
      const Made& made = made_.at(source->second);
      if (first == nullptr) first = &made;
      if (!same_numbers(first->spec.tensor_spec(0), made.spec.tensor_spec(0))) other = &made;
    }
    if (first == nullptr) return;
    const bool other_is_finer = other != nullptr && format(other->spec.format).bits > format(first->spec.format).bits;
    const Ruling ruling = rules.of(Subject{name, here.op}, other_is_finer ? other->spec : first->spec,
                                   other == nullptr ? &first->origin : nullptr);
    if (ruling.rule.output.spec) {
      quantize_value(flow.covered_output(here.outputs[0]), {*ruling.rule.output.spec, ruling.origin.at(Slot::Output)},
                     1, name);
    } else if (other != nullptr && !ruling.excluded && !ruling.rule.output.given) {
      result_.skipped.push_back({name, fmt::format("output stays float: what it reads is {} and {}",
                                                   describe(first->spec), describe(other->spec))});
    }
  }

  void quantize_value(const std::string& value, Made made, int64_t axis, const std::string& owner) {
    Quantizer& quantizer = add(value, Slot::Output, made.spec, axis);
    quantizer.serves.push_back({owner, Slot::Output});
    quantizer_of_.emplace(value, result_.quantizers.size() - 1);
    made_.emplace(result_.quantizers.size() - 1, std::move(made));
  }

  void place_input(size_t index) {
    const Layer& layer = result_.layers[index];
    const LayerRule& rule = rules_[index];
    if (!rule.input.spec || layer.input.empty()) return;
    const Spec& spec = *rule.input.spec;
    const int64_t axis = activation_axis(layer);
    const TensorSpec wanted = spec.tensor_spec(axis);
    if (const auto found = quantizer_of_.find(layer.input); found != quantizer_of_.end()) {
      share(found->second, layer, {spec, origins_[index].at(Slot::Input)});
      result_.quantizers[found->second].serves.push_back({layer.name, Slot::Input});
      return;
    }
    const Reader reader{layer.node, layer.weight_input == 0 ? 1 : 0};
    for (Quantizer& quantizer : result_.quantizers) {
      const bool same = quantizer.tensor == layer.input && quantizer.kind == Slot::Input &&
                        quantizer.dynamic == spec.dynamic && quantizer.observer == spec.observer &&
                        same_numbers(quantizer.spec, wanted);
      if (!same) continue;
      quantizer.readers.push_back(reader);
      quantizer.serves.push_back({layer.name, Slot::Input});
      return;
    }
    Quantizer& quantizer = add(layer.input, Slot::Input, spec, axis);
    quantizer.readers.push_back(reader);
    quantizer.serves.push_back({layer.name, Slot::Input});
  }

  /// Makes the quantizer of a value that is quantized where it is made do for `layer` as well, whose input wants
  /// `asked`: it becomes the finer of the two, else what the more special rule says. Throws where neither is.
  void share(size_t index, const Layer& layer, const Made& asked) {
    Quantizer& quantizer = result_.quantizers[index];
    const Made& made = made_.at(index);
    const TensorSpec wanted = asked.spec.tensor_spec(activation_axis(layer));
    const auto agrees = [&](const TensorSpec& spec, bool dynamic) {
      return dynamic == asked.spec.dynamic && same_numbers(spec, wanted);
    };
    if (agrees(quantizer.spec, quantizer.dynamic)) {
      if (asked.origin.row > made.origin.row) quantizer.observer = asked.spec.observer;
      return;
    }
    if (agrees(made.spec.tensor_spec(quantizer.spec.axis), made.spec.dynamic)) return;  // another reader changed it
    const Format& now = format(quantizer.spec.format);
    const Format& then = format(wanted.format);
    const bool one_scale = has_one_scale(quantizer) && !asked.spec.dynamic && !has_own_scales(wanted) &&
                           wanted.granularity == Granularity::PerTensor;
    const bool by_bits = now.kind == then.kind && now.bits != then.bits;
    if (!one_scale || (!by_bits && asked.origin.row == made.origin.row)) {
      fail(ErrorCode::InvalidConfig, layer.name + ".input",
           "is to be {} ({}), but what it reads is {} ({}: {}); a value is quantized once: make them equal, or one of "
           "them null",
           describe(asked.spec), asked.origin.text, describe(made.spec), quantizer.label(), made.origin.text);
    }
    if (by_bits ? then.bits > now.bits : asked.origin.row > made.origin.row) {
      result_.skipped.push_back(
          {quantizer.serves.front().layer, fmt::format("output is {}, not {}: {}.input asks for it",
                                                       describe(asked.spec), describe(made.spec), layer.name)});
      quantizer.spec = wanted;
      quantizer.observer = asked.spec.observer;
    } else {
      skip(layer, fmt::format("input is {}, not {}: {} asks for it", describe(made.spec), describe(asked.spec),
                              quantizer.label()));
    }
  }

  void place_weight(const Layer& layer, const LayerRule& rule) {
    if (!rule.weight.spec) return;
    const Spec& spec = *rule.weight.spec;
    const bool by_channel = spec.granularity == Granularity::PerChannel;
    const int64_t axis = by_channel ? channel_axis(graph(), layer) : input_axis(graph(), layer);
    const TensorSpec wanted = spec.tensor_spec(axis);
    const auto serve = [&](Quantizer& quantizer) {
      const auto input = static_cast<int64_t>(layer.weight_input);
      if (layer.inner != nullptr) {
        quantizer.inner_readers.push_back({node_id(*layer.inner), input});
      } else {
        quantizer.readers.push_back({layer.node, input});
      }
      quantizer.serves.push_back({layer.name, Slot::Weight});
    };
    for (Quantizer& quantizer : result_.quantizers) {
      if (quantizer.kind != Slot::Weight || quantizer.tensor != layer.weight) continue;
      if (!(quantizer.spec == wanted && quantizer.observer == spec.observer)) continue;
      serve(quantizer);
      return;
    }
    Quantizer& quantizer = add(layer.weight, Slot::Weight, spec, axis);
    quantizer.dynamic = false;
    serve(quantizer);
  }

  void place_bias(const Layer& layer, const LayerRule& rule) {
    if (!rule.bias.spec || layer.bias.empty()) return;
    const std::string reason = float_bias_reason(layer, rule);
    if (!reason.empty()) {
      skip(layer, "bias stays float: " + reason);
      return;
    }
    const Shape& shape = graph().find_initializer(layer.bias)->tensor.shape();
    Quantizer& quantizer = add(layer.bias, Slot::Bias, *rule.bias.spec, std::ssize(shape) - 1);
    quantizer.dynamic = false;
    if (rule.weight.spec->granularity == Granularity::PerChannel) quantizer.spec.granularity = Granularity::PerChannel;
    const Node& reader = node(layer.last_node());
    const auto at = std::find(reader.inputs.begin(), reader.inputs.end(), layer.bias);
    quantizer.readers.push_back({layer.last_node(), std::distance(reader.inputs.begin(), at)});
    quantizer.serves.push_back({layer.name, Slot::Bias});
  }

  /// Why the bias of `layer` cannot have the scale s_x·s_w, or "".
  std::string float_bias_reason(const Layer& layer, const LayerRule& rule) const {
    const auto integer = [](const SlotRule& slot) {
      return slot.spec && format(slot.spec->format).kind == FormatKind::Integer && !slot.spec->dynamic;
    };
    const auto whole = [](const SlotRule& slot) { return slot.spec->granularity == Granularity::PerTensor; };
    if (!integer(rule.input) || !whole(rule.input)) return "its scale follows from a static integer input";
    if (!integer(rule.weight) || (!whole(rule.weight) && rule.weight.spec->granularity != Granularity::PerChannel)) {
      return "its scale follows from a weight with one scale a tensor or a channel";
    }
    const Initializer* bias = graph().find_initializer(layer.bias);
    if (bias == nullptr || bias->tensor.type() != DType::Float32) return "it is not a stored float32 tensor";
    const int64_t channels = layer.weight_shape[static_cast<size_t>(channel_axis(graph(), layer))];
    const Shape& shape = bias->tensor.shape();
    const int64_t group = layer.op == "ConvTranspose" ? node(layer.node).get_int("group", 1) : 1;
    if (shape.empty() || shape.back() != channels || bias->tensor.size() != channels || group != 1) {
      return "it does not have one number a channel";
    }
    const Node& product = node(layer.node);
    if (layer.op == "Gemm" && (product.get_float("alpha", 1) != 1 || product.get_float("beta", 1) != 1)) {
      return "the Gemm scales its product";
    }
    return "";
  }

  /// The axis of a layer's input that is summed over.
  int64_t activation_axis(const Layer& layer) const {
    if (is_convolution(layer)) return 1;
    if (layer.op == "Gemm" && node(layer.node).get_int("transA", 0) != 0) return 0;
    return layer.weight_input == 0 ? -2 : -1;
  }
  static int64_t output_axis(const Layer& layer) { return is_convolution(layer) ? 1 : -1; }

  static bool has_one_scale(const Quantizer& quantizer) {
    return !quantizer.dynamic && !has_own_scales(quantizer.spec) &&
           quantizer.spec.granularity == Granularity::PerTensor;
  }

  /// Equal but for an axis that does not matter.
  static bool same_numbers(TensorSpec a, TensorSpec b) {
    const auto no_axis = [](TensorSpec& spec) {
      if (!has_own_scales(spec) && spec.granularity == Granularity::PerTensor) spec.axis = spec.group_size = 0;
    };
    no_axis(a);
    no_axis(b);
    return a == b;
  }

  /// Constants that nothing quantizes, where they are more than a hundredth of the model and worth a word.
  void list_what_stays_float() {
    constexpr int64_t kWorthAWord = 4096;  // bytes
    constexpr int64_t kShare = 100;
    int64_t total = 0;
    const std::function<void(const Graph&)> count = [&](const Graph& graph) {
      for (const Initializer& one : graph.initializers) total += one.tensor.byte_size();
      for (const Node& node : graph.nodes) {
        for (const std::shared_ptr<Graph>& inside : subgraphs(node)) count(*inside);
      }
    };
    count(graph());
    std::set<std::string> quantized;
    for (const Quantizer& quantizer : result_.quantizers) {
      if (!quantizer.is_activation()) quantized.insert(quantizer.tensor);
    }
    const Uses uses(graph());
    for (const Initializer& one : graph().initializers) {
      const int64_t bytes = one.tensor.byte_size();
      // A 16-bit weight is known by the value that its Cast makes.
      const std::vector<int64_t>& first = uses.consumers(one.name);
      const bool widened = is_half(one.tensor.type()) && !first.empty() && node(first.front()).op == "Cast";
      const std::string& value = widened ? node(first.front()).outputs[0] : one.name;
      if (!is_float(one.tensor) || quantized.contains(value)) continue;
      if (bytes < kWorthAWord || bytes * kShare <= total) continue;
      const auto layer = std::ranges::find(result_.layers, value, &Layer::weight);
      const std::vector<int64_t>& readers = uses.consumers(value);
      const std::string reader = readers.empty() ? "nothing" : node(readers.front()).label();
      const std::string name = layer != result_.layers.end() ? layer->name : one.name;
      const auto known = std::ranges::find(result_.skipped, name, &Skipped::layer);
      if (known != result_.skipped.end()) {
        known->bytes = bytes;
        continue;
      }
      result_.skipped.push_back(
          {name,
           fmt::format("stays float: {} bytes, {:.1f} % of the model's constants, read by {}", bytes,
                       100.0 * static_cast<double>(bytes) / static_cast<double>(total), reader),
           bytes});
    }
  }

  /// In the order of the graph: a layer's input, weight and bias, then its output.
  void sort_and_number() {
    std::unordered_map<std::string, int64_t> place;
    for (int64_t i = 0; i < std::ssize(graph().nodes); ++i) place.emplace(plain_name(node(i)), i);
    const Uses uses(graph());
    for (const Layer& layer : result_.layers) place[layer.name] = uses.producer(layer.node);
    const auto key = [&](const Quantizer& quantizer) {
      const Served& served = quantizer.serves.front();
      return std::pair(place.at(served.layer), served.slot);
    };
    std::stable_sort(result_.quantizers.begin(), result_.quantizers.end(),
                     [&](const Quantizer& a, const Quantizer& b) { return key(a) < key(b); });
    for (size_t i = 0; i < result_.quantizers.size(); ++i) result_.quantizers[i].id = static_cast<int64_t>(i);
  }

  QuantizedModel result_;
  std::vector<LayerRule> rules_;  ///< one for each layer
  std::vector<std::map<Slot, Origin>> origins_;
  std::map<std::string, size_t> quantizer_of_;  ///< value -> the quantizer that all its readers see
  std::map<size_t, Made> made_;                 ///< such a quantizer -> what its own rule says
};

}  // namespace

int64_t channel_axis(const Graph& graph, const Layer& layer) {
  const int64_t rank = std::ssize(layer.weight_shape);
  const Node& node = node_of(graph, layer);
  if (layer.op == "Conv" || layer.op == "Gather") return 0;
  if (layer.op == "ConvTranspose" || is_recurrent(layer)) return 1;  // [directions, gates, inputs]
  if (layer.op == "Gemm" && layer.weight_input == 1) return node.get_int("transB", 0) != 0 ? 0 : 1;
  if (layer.op == "Gemm") return node.get_int("transA", 0) != 0 ? 1 : 0;
  return layer.weight_input == 0 ? std::max<int64_t>(rank - 2, 0) : rank - 1;
}

int64_t input_axis(const Graph& graph, const Layer& layer) {
  const int64_t rank = std::ssize(layer.weight_shape);
  const Node& node = node_of(graph, layer);
  if (layer.op == "Conv") return 1;
  if (layer.op == "ConvTranspose") return 0;
  if (layer.op == "Gather" || is_recurrent(layer)) return rank - 1;
  if (layer.op == "Gemm" && layer.weight_input == 1) return node.get_int("transB", 0) != 0 ? 1 : 0;
  if (layer.op == "Gemm") return node.get_int("transA", 0) != 0 ? 0 : 1;
  return layer.weight_input == 0 ? rank - 1 : std::max<int64_t>(rank - 2, 0);
}

QuantizedModel place_quantizers(Model model, const Config& config) { return Placement(std::move(model), config).run(); }

}  // namespace kaon
