// Rounding the weights of a layer shifts the mean of its outputs by E[(W - W')·x], which the bias can take back
// (Nagel et al. 2019, arXiv:1906.04721, section 4.2, with the expectation taken over data).
#include <algorithm>

#include "base/error.h"
#include "engine/engine.h"
#include "graph/extract.h"
#include "graph/node_id.h"
#include "graph/stored.h"
#include "quant/algorithm.h"
#include "quant/simulate.h"
#include "quant/so_far.h"

namespace kaon {

namespace {

/// The float model with a second copy of each layer that computes (W - W')·x, its output among the model's.
class WeightErrors {
 public:
  explicit WeightErrors(const QuantizedModel& quantized) : model_(quantized.model) {
    for (const Layer& layer : quantized.layers) {
      const Quantizer* weight = quantized.find(layer.name, Slot::Weight);
      const Initializer* bias = quantized.model.graph.find_initializer(layer.bias);
      if (weight == nullptr || bias == nullptr || bias->tensor.type() != DType::Float32) continue;
      add(quantized, layer, *weight);
    }
  }

  const Model& model() const { return model_; }
  const std::vector<const Layer*>& layers() const { return layers_; }
  /// Where the output of layers()[0] stands among the model's.
  size_t first_output() const { return model_.graph.outputs.size() - layers_.size(); }

 private:
  void add(const QuantizedModel& quantized, const Layer& layer, const Quantizer& quantizer) {
    const Tensor exact = widened(find_stored(quantized.model.graph, layer.weight)->tensor);
    std::vector<float> error(static_cast<size_t>(exact.size()));
    quantizer.apply(float_view(constant_of(quantized, layer.weight)), error, exact.shape());
    std::ranges::transform(exact.as<float>(), error, error.begin(), std::minus<>());
    const std::string value = layer.name + "|weight_error";
    model_.graph.initializers.push_back({value, Tensor::of(exact.shape(), error), {}, {}});
    Node node = node_by_id(model_.graph, layer.node);
    node.name += "|error";
    node.inputs.resize(2);
    node.inputs[layer.weight_input] = value;
    node.outputs = {layer.name + "|error"};
    model_.graph.outputs.emplace_back();
    model_.graph.outputs.back().name = node.outputs[0];
    model_.graph.nodes.push_back(std::move(node));
    layers_.push_back(&layer);
  }

  Model model_;
  std::vector<const Layer*> layers_;
};

/// Sums over all but the channel axis.
void add_channels(const Tensor& tensor, int64_t axis, std::vector<double>& sums) {
  const Shape& shape = tensor.shape();
  const auto at = static_cast<size_t>(axis);
  const int64_t inner = element_count(std::span(shape).subspan(at + 1));
  const std::span<const float> values = tensor.as<float>();
  sums.resize(static_cast<size_t>(shape[at]));
  for (size_t i = 0; i < values.size(); ++i) {
    sums[i / static_cast<size_t>(inner) % sums.size()] += static_cast<double>(values[i]);
  }
}

/// Mean of every channel of the layers' outputs, under the names that `value_of` gives them in `model`.
std::vector<std::vector<double>> output_means(const Model& model, std::span<const Layer* const> layers,
                                              const std::function<std::string(const Layer&)>& value_of,
                                              const AlgorithmInput& input) {
  std::vector<std::vector<double>> sums(layers.size());
  std::vector<int64_t> counts(layers.size());
  Hooks hooks;
  for (size_t i = 0; i < layers.size(); ++i) {
    hooks.watch_tensor(value_of(*layers[i]), [&, i](const Shown& shown) {
      const Tensor& output = shown.tensor;
      add_channels(output, is_convolution(*layers[i]) ? 1 : output.rank() - 1, sums[i]);
      counts[i] += output.size() / std::ssize(sums[i]);
    });
  }
  Engine engine(model);
  const Dataset& data = *input.data;
  const int64_t batch = batch_for(model.graph, input.settings.batch, data);
  input.settings.progress->begin("correcting biases", data.size());
  for (int64_t first = 0; first < data.size(); first += batch) {
    engine.run(data.read(first, std::min(batch, data.size() - first)).inputs, hooks);
    input.settings.progress->at(std::min(first + batch, data.size()));
  }
  input.settings.progress->end();
  for (size_t i = 0; i < sums.size(); ++i) {
    for (double& sum : sums[i]) sum /= static_cast<double>(counts[i]);
  }
  return sums;
}

bool shift_bias(QuantizedModel& quantized, const Layer& layer, std::span<const double> by) {
  const Tensor& bias = constant_of(quantized, layer.bias);
  if (bias.size() != std::ssize(by)) return false;
  std::vector<float> values = bias.to_float();
  for (size_t c = 0; c < values.size(); ++c) values[c] += static_cast<float>(by[c]);
  quantized.rounded[layer.bias] = Tensor::of(bias.shape(), values);
  return true;
}

/// What is left behind layers whose own errors are corrected: the shift of what they read. Strictly one after the
/// other: correcting two neighbours at once counts the shift of the first twice, which grows from layer to layer.
void correct_in_order(const AlgorithmInput& input, std::span<const Layer* const> layers) {
  QuantizedModel& quantized = input.quantized;
  const auto exact = output_means(
      quantized.model, layers, [](const Layer& layer) { return layer.output; }, input);
  for (size_t i = 0; i < layers.size(); ++i) {
    Model simulated = simulate_so_far(quantized);
    // Before a quantizer of the output.
    const std::string raw = raw_name(layers[i]->output);
    const bool renamed =
        std::ranges::any_of(simulated.graph.nodes, [&](const Node& node) { return node_id(node) == raw; });
    const std::string value = renamed ? raw : layers[i]->output;
    const std::vector<ValueInfo>& inputs = simulated.graph.inputs;
    if (inputs.size() == 1) simulated = extract(simulated, {std::string(inputs[0].name)}, {value});
    const auto found = output_means(
        simulated, layers.subspan(i, 1), [&](const Layer&) -> const std::string& { return value; }, input);
    std::vector<double> by = exact[i];
    std::ranges::transform(by, found[0], by.begin(), std::minus<>());
    shift_bias(quantized, *layers[i], by);
  }
}

/// What each layer's own weight shifts, in the float network.
void correct_each(const AlgorithmInput& input, const WeightErrors& errors) {
  QuantizedModel& quantized = input.quantized;
  const Dataset& data = *input.data;
  const QuantizeSettings& settings = input.settings;
  Engine engine(errors.model());
  std::vector<std::vector<double>> sums(errors.layers().size());
  std::vector<int64_t> counts(sums.size());
  const int64_t batch = batch_for(quantized.model.graph, settings.batch, data);
  CarriedState state(data, errors.model().graph);
  settings.progress->begin("correcting biases", data.size());
  for (int64_t first = 0; first < data.size(); first += batch) {
    const std::vector<Tensor> outputs = engine.run(state.enter(data.read(first, std::min(batch, data.size() - first))));
    state.leave(outputs);
    for (size_t i = 0; i < sums.size(); ++i) {
      const Tensor& error = outputs[errors.first_output() + i];
      add_channels(error, is_convolution(*errors.layers()[i]) ? 1 : error.rank() - 1, sums[i]);
      counts[i] += error.size() / std::ssize(sums[i]);
    }
    settings.progress->at(std::min(first + batch, data.size()));
  }
  settings.progress->end();
  for (size_t i = 0; i < sums.size(); ++i) {
    for (double& sum : sums[i]) sum /= static_cast<double>(counts[i]);
    if (shift_bias(quantized, *errors.layers()[i], sums[i])) ++input.report.changed;
  }
}

void correct_biases(const AlgorithmInput& input) {
  const WeightErrors errors(input.quantized);
  if (errors.layers().empty()) return input.note("no quantized layer has a bias to correct");
  if (sets_biases(input.quantized.config.algorithms)) {
    input.report.changed = std::ssize(errors.layers());
  } else {
    correct_each(input, errors);
  }
  if (input.flag("sequential")) correct_in_order(input, errors.layers());
}

}  // namespace

void register_bias_correction(Registry<Algorithm>& algorithms) {
  algorithms.add("bias_correction", {.summary = "takes the mean error of quantized weights back through the biases",
                                     .decides = Decides::Biases,
                                     .options = {{.name = "sequential",
                                                  .value = 0,
                                                  .min = 0,
                                                  .max = 1,
                                                  .help = "then also what is left in the quantized network itself, "
                                                          "from front to back",
                                                  .flag = true}},
                                     .run = correct_biases});
}

}  // namespace kaon
