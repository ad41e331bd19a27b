// Batch norms that are not folded into a layer: quantization shifts and stretches what they read, so that the means and
// variances they were trained with are no longer those of their input. What the calibration data show of both networks
// puts that right.
#include <algorithm>
#include <cmath>

#include "engine/engine.h"
#include "graph/extract.h"
#include "graph/node_id.h"
#include "quant/algorithm.h"
#include "quant/simulate.h"
#include "quant/so_far.h"

namespace kaon {
namespace {

/// A norm with constants of its own.
struct Norm {
  std::string node;
  std::string input;
  std::string mean;
  std::string variance;
};

struct Moments {
  std::vector<double> sum, squares;
  int64_t count = 0;

  void add(const Tensor& tensor) {
    const Shape& shape = tensor.shape();
    const auto inner = static_cast<size_t>(element_count(std::span(shape).subspan(2)));
    const std::span<const float> values = tensor.as<float>();
    sum.resize(static_cast<size_t>(shape[1]));
    squares.resize(sum.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t channel = i / inner % sum.size();
      sum[channel] += static_cast<double>(values[i]);
      squares[channel] += static_cast<double>(values[i]) * values[i];
    }
    count += std::ssize(values) / std::ssize(sum);
  }
  double mean(size_t channel) const { return sum[channel] / static_cast<double>(count); }
  double variance(size_t channel) const {
    return std::max(0.0, squares[channel] / static_cast<double>(count) - mean(channel) * mean(channel));
  }
};

std::vector<Norm> norms_of(const AlgorithmInput& input) {
  const Graph& graph = input.quantized.model.graph;
  const Uses uses(graph);
  const auto own = [&](const std::string& value) {
    const Initializer* constant = graph.find_initializer(value);
    return constant != nullptr && constant->tensor.type() == DType::Float32 && uses.consumers(value).size() == 1;
  };
  std::vector<Norm> norms;
  int64_t shared = 0;
  for (const Node& node : graph.nodes) {
    if (node.op != "BatchNormalization" || !node.domain.empty() || node.inputs.size() != 5) continue;
    if (uses.producer(node.inputs[0]) < 0) continue;  // data come as they are
    const Norm norm{node_id(node), node.inputs[0], node.inputs[3], node.inputs[4]};
    if (own(norm.mean) && own(norm.variance) && norm.mean != norm.variance) {
      norms.push_back(norm);
    } else {
      ++shared;
    }
  }
  if (shared > 0) input.note("{} batch norms are left alone: their statistics are computed, or shared", shared);
  return norms;
}

/// Of these values in `model`.
std::vector<Moments> moments_in(const Model& model, const std::vector<std::string>& values,
                                const AlgorithmInput& input) {
  std::vector<Moments> moments(values.size());
  Hooks hooks;
  for (size_t i = 0; i < values.size(); ++i) {
    hooks.watch_tensor(values[i], [&moments, i](const Shown& shown) { moments[i].add(shown.tensor); });
  }
  const Dataset& data = *input.data;
  Engine engine(model);
  CarriedState state(data, model.graph);
  const int64_t batch = batch_for(model.graph, input.settings.batch, data);
  input.settings.progress->begin("looking at batch norms", data.size());
  for (int64_t first = 0; first < data.size(); first += batch) {
    state.leave(engine.run(state.enter(data.read(first, std::min(batch, data.size() - first))), hooks));
    input.settings.progress->at(std::min(first + batch, data.size()));
  }
  input.settings.progress->end();
  return moments;
}

/// As much as the quantized network's differ from the float network's.
void correct(const Norm& norm, const Moments& exact, const Moments& found, QuantizedModel& quantized) {
  const Tensor& old_mean = quantized.model.graph.find_initializer(norm.mean)->tensor;
  const Tensor& old_variance = quantized.model.graph.find_initializer(norm.variance)->tensor;
  std::vector<float> mean = old_mean.to_float();
  std::vector<float> variance = old_variance.to_float();
  constexpr double kTiny = 1e-12;
  for (size_t c = 0; c < mean.size(); ++c) {
    // Around the mean of these data, which need not be that of all data, the input is stretched by `stretch`.
    const bool moves = exact.variance(c) > kTiny && found.variance(c) > kTiny;
    const double stretch = moves ? std::sqrt(found.variance(c) / exact.variance(c)) : 1;
    mean[c] = static_cast<float>(found.mean(c) + (static_cast<double>(mean[c]) - exact.mean(c)) * stretch);
    variance[c] = static_cast<float>(static_cast<double>(variance[c]) * stretch * stretch);
  }
  quantized.rounded[norm.mean] = Tensor::of(old_mean.shape(), mean);
  quantized.rounded[norm.variance] = Tensor::of(old_variance.shape(), variance);
}

void reestimate(const AlgorithmInput& input) {
  const std::vector<Norm> norms = norms_of(input);
  if (norms.empty()) return input.note("no batch norm is left beside the layers");
  std::vector<std::string> values;
  for (const Norm& norm : norms) values.push_back(norm.input);
  const std::vector<Moments> exact = moments_in(input.quantized.model, values, input);
  // Strictly one after the other: what is put right in one changes what the next read.
  for (size_t i = 0; i < norms.size(); ++i) {
    Model simulated = simulate_so_far(input.quantized);
    const auto node = std::ranges::find_if(simulated.graph.nodes, [&](const Node& one) {
      return node_id(one) == norms[i].node || node_id(one) == raw_name(norms[i].node);
    });
    const std::string value = node->inputs[0];
    const std::vector<ValueInfo>& inputs = simulated.graph.inputs;
    if (inputs.size() == 1) simulated = extract(simulated, {std::string(inputs[0].name)}, {value});
    correct(norms[i], exact[i], moments_in(simulated, {value}, input)[0], input.quantized);
    ++input.report.changed;
  }
}

}  // namespace

void register_bn_reestimation(Registry<Algorithm>& algorithms) {
  algorithms.add("bn_reestimation", {.summary = "gives batch norms the means and variances of the quantized network",
                                     .decides = Decides::Norms,
                                     .options = {},
                                     .run = reestimate});
}

}  // namespace kaon
