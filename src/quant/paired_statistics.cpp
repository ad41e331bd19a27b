#include "quant/paired_statistics.h"

#include <algorithm>
#include <optional>

#include "engine/engine.h"
#include "graph/extract.h"
#include "quant/so_far.h"

namespace kaon {
namespace {

/// Some values of a network, for batches of its inputs.
class Values {
 public:
  Values(const Model& model, const std::vector<std::string>& wanted) {
    const std::vector<ValueInfo>& inputs = model.graph.inputs;
    for (const std::string& value : wanted) {
      const bool given = std::ranges::find(inputs, value, &ValueInfo::name) != inputs.end();
      if (!given && std::ranges::find(made_, value) == made_.end()) made_.push_back(value);
    }
    if (made_.empty()) return;
    if (inputs.size() == 1) {
      engine_.emplace(extract(model, {inputs[0].name}, made_));
      return;
    }
    Model watched = model;
    watched.graph.outputs.clear();
    for (const std::string& value : made_) {
      watched.graph.outputs.emplace_back();
      watched.graph.outputs.back().name = value;
    }
    engine_.emplace(std::move(watched));
  }

  TensorMap of(const TensorMap& inputs) {
    TensorMap values = inputs;
    if (!engine_) return values;
    std::vector<Tensor> outputs = engine_->run(inputs);
    for (size_t i = 0; i < made_.size(); ++i) values[made_[i]] = std::move(outputs[i]);
    return values;
  }

 private:
  std::vector<std::string> made_;
  std::optional<Engine> engine_;
};

struct Pair {
  std::string exact;    ///< value in the float model
  std::string rounded;  ///< and in the quantized one
  InputSums sums;
};

}  // namespace

std::vector<std::shared_ptr<const InputStatistics>> paired_statistics_of(std::span<const GridWeight> weights,
                                                                         size_t count, const AlgorithmInput& input) {
  QuantizedModel quantized = input.quantized;
  for (const GridWeight& weight : weights) {
    quantized.quantizers[static_cast<size_t>(weight.quantizer - input.quantized.quantizers.data())].enabled = false;
    quantized.rounded.erase(weight.quantizer->tensor);
  }
  weights = weights.first(count);
  std::vector<Pair> pairs;
  std::vector<std::string> wanted[2];
  for (const GridWeight& weight : weights) {
    for (const Layer* layer : weight.layers) {
      const std::string rounded = read_so_far(quantized, *layer);
      pairs.push_back({layer->input, rounded, InputSums(product_of(quantized.model.graph, *layer), true)});
      wanted[0].push_back(layer->input);
      wanted[1].push_back(rounded);
    }
  }
  Values exact(quantized.model, wanted[0]);
  Values rounded(simulate_so_far(quantized), wanted[1]);
  const Dataset& data = *input.data;
  const int64_t batch = batch_for(quantized.model.graph, input.settings.batch, data);
  input.settings.progress->begin("collecting statistics", data.size());
  for (int64_t first = 0; first < data.size(); first += batch) {
    const Batch samples = data.read(first, std::min(batch, data.size() - first));
    const TensorMap y = exact.of(samples.inputs);
    const TensorMap x = rounded.of(samples.inputs);
    for (Pair& pair : pairs) pair.sums.add(x.at(pair.rounded), first, &y.at(pair.exact));
    input.settings.progress->at(std::min(first + batch, data.size()));
  }
  input.settings.progress->end();
  std::vector<std::shared_ptr<const InputStatistics>> statistics;
  size_t next = 0;
  for (const GridWeight& weight : weights) {
    InputStatistics sum = pairs[next++].sums.finish();
    for (size_t i = 1; i < weight.layers.size(); ++i) sum.add(pairs[next++].sums.finish());
    statistics.push_back(std::make_shared<const InputStatistics>(std::move(sum)));
  }
  return statistics;
}

}  // namespace kaon
