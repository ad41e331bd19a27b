// Rounding the weights of a layer shifts the mean of its outputs by E[(W - W')·x], which the bias can take back
// (Nagel et al. 2019, arXiv:1906.04721, section 4.2, with the expectation taken over data).
#include <algorithm>

#include "base/error.h"
#include "engine/engine.h"
#include "quant/algorithm.h"

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
    const Tensor& exact = constant_of(quantized, layer.weight);
    std::vector<float> error(static_cast<size_t>(exact.size()));
    quantizer.apply(exact.as<float>(), error, exact.shape());
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

void correct_biases(const AlgorithmInput& input) {
  QuantizedModel& quantized = input.quantized;
  const Dataset& data = *input.data;
  const QuantizeSettings& settings = input.settings;
  const WeightErrors errors(quantized);
  if (errors.layers().empty()) return input.note("no quantized layer has a bias to correct");
  Engine engine(errors.model());
  std::vector<std::vector<double>> sums(errors.layers().size());
  std::vector<int64_t> counts(sums.size());
  const int64_t batch = batch_for(quantized.model.graph, settings.batch, data);
  settings.progress->begin("correcting biases", data.size());
  for (int64_t first = 0; first < data.size(); first += batch) {
    const std::vector<Tensor> outputs = engine.run(data.read(first, std::min(batch, data.size() - first)).inputs);
    for (size_t i = 0; i < sums.size(); ++i) {
      const Tensor& error = outputs[errors.first_output() + i];
      add_channels(error, is_convolution(*errors.layers()[i]) ? 1 : error.rank() - 1, sums[i]);
      counts[i] += error.size() / std::ssize(sums[i]);
    }
    settings.progress->at(std::min(first + batch, data.size()));
  }
  settings.progress->end();
  for (size_t i = 0; i < sums.size(); ++i) {
    const Layer& layer = *errors.layers()[i];
    const Tensor& bias = constant_of(quantized, layer.bias);
    if (bias.size() != std::ssize(sums[i])) continue;
    std::vector<float> values = bias.to_float();
    for (size_t c = 0; c < values.size(); ++c) {
      values[c] += static_cast<float>(sums[i][c] / static_cast<double>(counts[i]));
    }
    quantized.rounded[layer.bias] = Tensor::of(bias.shape(), values);
    ++input.report.changed;
  }
}

}  // namespace

void register_bias_correction(Registry<Algorithm>& algorithms) {
  algorithms.add("bias_correction", {.summary = "takes the mean error of quantized weights back through the biases",
                                     .options = {},
                                     .run = correct_biases});
}

}  // namespace kaon
