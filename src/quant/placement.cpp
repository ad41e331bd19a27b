#include "quant/placement.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <unordered_map>

#include "base/error.h"
#include "base/keys.h"
#include "base/text.h"
#include "graph/finite.h"
#include "quant/flow.h"
#include "quant/schemes.h"

namespace kaon {
namespace {

constexpr int64_t kFewestGroupChannels = 16;  ///< below it, groups along K cost more than they save

const std::vector<std::string>& layer_types() {
  static const std::vector<std::string> types = {"Conv",   "ConvTranspose", "Gemm", "MatMul",
                                                 "Gather", "LSTM",          "GRU",  "RNN"};
  return types;
}

void apply(const LayerRule& over, LayerRule& rule) {
  for (const Slot slot : {Slot::Input, Slot::Output, Slot::Weight, Slot::Bias}) {
    if (over.at(slot).given) rule.at(slot) = over.at(slot);
  }
}

/// What a config says about each layer.
class Rules {
 public:
  Rules(const Config& config, const std::vector<Layer>& layers) : config_(config) {
    for (const auto& [type, rule] : config.by_type) {
      expect_known_key(type, layer_types(), "by_type");
      expect_match("by_type", type, layers, [&, &wanted = type](const Layer& layer) { return layer.op == wanted; });
    }
    const auto by_glob = [&](const char* key, const std::string& pattern) {
      expect_match(key, pattern, layers, [&](const Layer& layer) { return glob_match(pattern, layer.name); });
    };
    for (const auto& [pattern, rule] : config.by_name) by_glob("by_name", pattern);
    for (const std::string& pattern : config.exclude) by_glob("exclude", pattern);
  }

  LayerRule of(const Layer& layer) const {
    LayerRule rule;
    for (const std::string& pattern : config_.exclude) {
      if (glob_match(pattern, layer.name)) return rule;
    }
    rule = layer.op == "Gather" ? table_rule(layer) : config_.global;
    for (const auto& [type, over] : config_.by_type) {
      if (type == layer.op) apply(over, rule);
    }
    for (const auto& [pattern, over] : config_.by_name) {
      if (glob_match(pattern, layer.name)) apply(over, rule);
    }
    return rule;
  }

 private:
  /// What `global` says of an embedding: it has rows to look up, and no operator looks up 4-bit ones or blocks, so all
  /// narrow integers become 8-bit ones. Where activations are static, tables stay float unless a rule asks for them.
  LayerRule table_rule(const Layer& layer) const {
    constexpr int64_t kFewestNumbers = 256;  // what is added to a file costs as much as smaller tables save
    LayerRule rule;
    if (!config_.global.weight.spec || strategy_of(config_.global) == Strategy::Static) return rule;
    if (element_count(layer.weight_shape) < kFewestNumbers) return rule;
    Spec spec = *config_.global.weight.spec;
    const Format& own = format(spec.format);
    if (own.kind == FormatKind::Block || (own.kind == FormatKind::Float && !is_cast(own))) return rule;
    if (own.kind == FormatKind::Integer && (own.bits < 8 || spec.granularity == Granularity::PerGroup)) {
      spec = Spec{};
      spec.granularity = Granularity::PerChannel;
    }
    rule.weight = spec;
    return rule;
  }

  template <typename Matches>
  static void expect_match(const char* key, const std::string& pattern, const std::vector<Layer>& layers,
                           const Matches& matches) {
    if (std::any_of(layers.begin(), layers.end(), matches)) return;
    std::vector<std::string> names;
    for (const Layer& layer : layers) names.push_back(layer.name);
    const std::string near = nearest(pattern, names);
    fail(ErrorCode::InvalidConfig, key, "'{}' matches no layer of this model; {}", pattern,
         near.empty() ? "`kaon info` lists them" : "did you mean '" + near + "'?");
  }

  const Config& config_;
};

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
    const Rules rules(result_.config, result_.layers);
    for (const Layer& layer : result_.layers) rules_.push_back(adapted(layer, rules.of(layer)));
    place_outputs();
    for (size_t i = 0; i < rules_.size(); ++i) {
      place_input(result_.layers[i], rules_[i]);
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
    const Initializer* weight = graph().find_initializer(layer.weight);
    if (weight == nullptr || weight->tensor.type() != DType::Float32) {
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

  /// Outputs of layers, and what flows from them through operators that are no layers.
  void place_outputs() {
    const ValueFlow flow(graph());
    std::map<std::string, size_t> layer_of;  // by the node that makes the layer's output
    for (size_t i = 0; i < result_.layers.size(); ++i) {
      const Layer& layer = result_.layers[i];
      if (rules_[i].output.spec && !layer.output.empty()) layer_of[layer.last_node()] = i;
    }
    for (int64_t index = 0; index < std::ssize(graph().nodes); ++index) {
      const auto found = layer_of.find(node_id(node(index)));
      if (found != layer_of.end()) {
        const Layer& layer = result_.layers[found->second];
        const Spec& spec = *rules_[found->second].output.spec;
        quantize_value(flow.covered_output(layer.output), Slot::Output, spec, output_axis(layer), layer.name);
        continue;
      }
      follow(flow, index);
    }
  }

  void follow(const ValueFlow& flow, int64_t index) {
    const FlowKind kind = flow.kind(index);
    if (kind == FlowKind::Other) return;
    const Node& here = node(index);
    const std::string& output = here.outputs[0];
    if (whole_.contains(output)) return;  // a Relu that a layer's quantizer covers
    if (kind == FlowKind::Moves) {
      const auto source = whole_.find(here.inputs[0]);
      if (source == whole_.end() || !has_one_scale(result_.quantizers[source->second])) return;
      const size_t count = here.op == "Split" ? here.outputs.size() : 1;  // MaxPool's second output counts positions
      for (const std::string& made : std::span(here.outputs).first(count)) {
        result_.quantizers[source->second].moved.push_back(made);
        whole_.emplace(made, source->second);
      }
      return;
    }
    const Quantizer* first = nullptr;
    for (const std::string& input : flow.data_inputs(index)) {
      const auto source = whole_.find(input);
      if (source == whole_.end()) return;
      const Quantizer& quantizer = result_.quantizers[source->second];
      if (!has_one_scale(quantizer) || (first != nullptr && !same_numbers(first->spec, quantizer.spec))) return;
      first = &quantizer;
    }
    if (first == nullptr) return;
    const Spec spec = spec_of_.at(first->tensor);
    quantize_value(flow.covered_output(output), Slot::Output, spec, 1, plain_name(here));
  }

  void quantize_value(const std::string& value, Slot slot, const Spec& spec, int64_t axis, const std::string& owner) {
    Quantizer& quantizer = add(value, slot, spec, axis);
    quantizer.serves.push_back({owner, slot});
    whole_.emplace(value, result_.quantizers.size() - 1);
    spec_of_.emplace(value, spec);
  }

  void place_input(const Layer& layer, const LayerRule& rule) {
    if (!rule.input.spec || layer.input.empty()) return;
    const Spec& spec = *rule.input.spec;
    const int64_t axis = activation_axis(layer);
    const TensorSpec wanted = spec.tensor_spec(axis);
    const auto found = whole_.find(layer.input);
    if (found != whole_.end() && result_.quantizers[found->second].dynamic == spec.dynamic &&
        same_numbers(result_.quantizers[found->second].spec, wanted)) {
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
      if (one.tensor.type() != DType::Float32 || quantized.contains(one.name)) continue;
      if (bytes < kWorthAWord || bytes * kShare <= total) continue;
      const auto layer = std::ranges::find(result_.layers, one.name, &Layer::weight);
      const std::vector<int64_t>& readers = uses.consumers(one.name);
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
  std::vector<LayerRule> rules_;         ///< one for each layer
  std::map<std::string, size_t> whole_;  ///< value -> the quantizer that all its readers see
  std::map<std::string, Spec> spec_of_;  ///< value -> the spec of its quantizer
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
