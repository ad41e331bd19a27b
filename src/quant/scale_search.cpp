#include "quant/scale_search.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "engine/engine.h"
#include "engine/linalg.h"
#include "graph/stored.h"
#include "quant/observer.h"
#include "quant/placement.h"
#include "quant/scale_groups.h"

namespace kaon {
namespace {

/// What data showed of a value whose last axis holds channels.
struct Seen {
  FloatMatrix rows;  ///< some of them
  int64_t filled = 0;
  std::vector<float> largest;
  std::vector<double> magnitudes;  ///< summed over `count` rows
  int64_t count = 0;

  /// Those of samples first … first + samples - 1; `each` of every sample are kept.
  void add(const Tensor& tensor, int64_t first, int64_t samples, int64_t each, int64_t most) {
    const int64_t width = tensor.shape().back();
    const int64_t all = tensor.size() / std::max<int64_t>(1, width);
    const std::span<const float> values = tensor.as<float>();
    if (rows.cols == 0) {
      rows = FloatMatrix(most, width);
      largest.resize(static_cast<size_t>(width));
      magnitudes.resize(static_cast<size_t>(width));
    }
    for (size_t i = 0; i < values.size(); ++i) {
      const float size = std::fabs(values[i]);
      largest[i % largest.size()] = std::max(largest[i % largest.size()], size);
      magnitudes[i % largest.size()] += static_cast<double>(size);
    }
    count += all;
    const int64_t per_sample = all / samples;
    for (int64_t sample = 0; sample < samples; ++sample) {
      for (int64_t i = 0; i < std::min(each, per_sample) && filled < most; ++i) {
        // One of each stretch, others of every sample.
        const int64_t begin = i * per_sample / each, end = std::max(begin + 1, (i + 1) * per_sample / each);
        const int64_t row = sample * per_sample + begin + (first + sample) * 31 % (end - begin);
        const auto from = values.subspan(static_cast<size_t>(row * width), static_cast<size_t>(width));
        std::ranges::copy(from, rows.row(filled++).begin());
      }
    }
  }
  void finish() {
    rows.data.resize(static_cast<size_t>(filled * rows.cols));
    rows.rows = filled;
  }
  void divide(const std::vector<int64_t>& channel, const std::vector<double>& by) {
    for (size_t i = 0; i < rows.data.size(); ++i) {
      rows.data[i] = static_cast<float>(rows.data[i] / by[static_cast<size_t>(channel[i % channel.size()])]);
    }
    for (size_t k = 0; k < channel.size(); ++k) {
      const double factor = by[static_cast<size_t>(channel[k])];
      largest[k] = static_cast<float>(largest[k] / factor);
      magnitudes[k] /= factor;
    }
  }
};

double sum_of_squares(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return sum;
}

class Search {
 public:
  Search(const AlgorithmInput& input, const ScaleRule& rule, int64_t steps)
      : input_(input), quantized_(input.quantized), graph_(quantized_.model.graph), rule_(rule), steps_(steps) {}

  void run() {
    std::vector<ScaleGroup> groups = find_scale_groups(quantized_, *input_.data);
    std::erase_if(groups, [&](const ScaleGroup& group) { return !is_quantized(group); });
    note_others(groups);
    if (groups.empty()) return;
    watch(groups);
    input_.settings.progress->begin("searching scales", std::ssize(groups));
    for (const ScaleGroup& group : groups) {
      const std::vector<double> by = best(group);
      input_.settings.progress->at(&group - groups.data() + 1);
      if (by.empty()) continue;
      apply(group, by);
      ++input_.report.changed;
    }
    input_.settings.progress->end();
    if (input_.report.changed == 0) input_.note("no group of products gains by other scales");
  }

 private:
  static constexpr int64_t kRows = 512;  ///< of a value that are looked at

  const Quantizer* at(const Layer& layer, Slot slot) const {
    const Quantizer* found = quantized_.find(layer.name, slot);
    return found != nullptr && found->enabled ? found : nullptr;
  }
  bool is_quantized(const ScaleGroup& group) const {
    return std::ranges::any_of(group.products, [&](const ScaleGroup::Product& product) {
      return at(*product.layer, Slot::Weight) != nullptr || at(*product.layer, Slot::Input) != nullptr;
    });
  }

  void note_others(const std::vector<ScaleGroup>& groups) const {
    std::set<const Layer*> served;
    for (const ScaleGroup& group : groups) {
      for (const ScaleGroup::Product& product : group.products) served.insert(product.layer);
    }
    std::vector<std::string> others;
    for (const Layer& layer : quantized_.layers) {
      if (layer.op == "Gather" || served.contains(&layer)) continue;
      if (at(layer, Slot::Weight) != nullptr || at(layer, Slot::Input) != nullptr) others.push_back(layer.name);
    }
    if (served.empty()) {
      input_.note("no product reads a value whose channels a norm or a layer before it can divide by factors");
    } else if (!others.empty()) {
      input_.note("{} of {} quantized layers are left alone, since nothing before them can take the factors: {}{}",
                  others.size(), others.size() + served.size(), others.front(), others.size() > 1 ? " …" : "");
    }
  }

  /// Whether other factors change how well the source itself is quantized.
  bool source_matters(const ScaleGroup& group) const {
    if (group.layer == nullptr) return false;
    const Quantizer* weight = at(*group.layer, Slot::Weight);
    const Quantizer* output = at(*group.layer, Slot::Output);
    return (weight != nullptr && !has_own_scales(weight->spec) && weight->spec.granularity == Granularity::PerTensor) ||
           (output != nullptr && output->spec.granularity != Granularity::PerChannel);
  }

  void watch(const std::vector<ScaleGroup>& groups) {
    const Dataset& data = *input_.data;
    const int64_t batch = batch_for(graph_, input_.settings.batch, data);
    const int64_t each = std::max<int64_t>(1, kRows / data.size());
    int64_t first = 0, samples = 0;
    Hooks hooks;
    std::vector<std::string> of_inputs;
    const auto want = [&](const std::string& value) {
      const auto [seen, is_new] = seen_.try_emplace(value);
      if (!is_new) return;
      if (std::ranges::any_of(graph_.inputs, [&](const ValueInfo& one) { return one.name == value; })) {
        of_inputs.push_back(value);
        return;
      }
      hooks.watch_tensor(value, [&, &to = seen->second](const Shown& shown) {
        to.add(shown.tensor, first + shown.first, shown.samples(samples), each, kRows);
      });
    };
    for (const ScaleGroup& group : groups) {
      for (const ScaleGroup::Product& product : group.products) want(product.layer->input);
      if (source_matters(group)) want(group.layer->input);
    }
    Engine engine(quantized_.model);
    CarriedState state(data, graph_);
    input_.settings.progress->begin("looking at activations", data.size());
    for (; first < data.size(); first += batch) {
      samples = std::min(batch, data.size() - first);
      const Batch read = data.read(first, samples);
      check_finite(read, first);
      const TensorMap inputs = state.enter(read);
      for (const std::string& value : of_inputs) seen_.at(value).add(inputs.at(value), first, samples, each, kRows);
      state.leave(engine.run(inputs, hooks));
      input_.settings.progress->at(std::min(first + batch, data.size()));
    }
    input_.settings.progress->end();
    for (auto& [value, seen] : seen_) seen.finish();
  }

  const Tensor& weight_of(const Layer& layer) const { return find_stored(graph_, layer.weight)->tensor; }
  bool cols_first(const Layer& layer) const { return input_axis(graph_, layer) == 0; }

  /// The weight with each input or output times a factor.
  std::vector<float> scaled_weight(const Layer& layer, bool inputs, const std::vector<double>& factors) const {
    std::vector<float> values = weight_of(layer).to_float();
    const auto width = static_cast<size_t>(layer.weight_shape[1]);
    const bool by_row = cols_first(layer) == inputs;
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(values[i] * factors[by_row ? i / width : i % width]);
    }
    return values;
  }

  /// Through the quantizer as calibration of just these values would set it.
  static void quantize_by(const Quantizer* quantizer, std::vector<float>& values, const Shape& shape) {
    if (quantizer == nullptr) return;
    const TensorSpec& spec = quantizer->spec;
    if (quantizer->dynamic || !learns_scales(format(spec.format))) {
      fake_quantize(values, values, shape, spec);
      return;
    }
    const QuantParams params = observe_params(values, shape, spec, quantizer->observer, quantizer->label());
    fake_quantize(values, values, shape, spec, params);
  }

  /// rows · weightᵀ.
  FloatMatrix product_of(const FloatMatrix& rows, std::span<const float> weight, const Layer& layer) const {
    const FloatMatrixView stored(weight, layer.weight_shape[0], layer.weight_shape[1]);
    return multiply(rows, cols_first(layer) ? stored : stored.t());
  }

  /// The error of what a product makes, relative to what it makes.
  double product_error(const ScaleGroup& group, const ScaleGroup::Product& product, const std::vector<double>& by,
                       const FloatMatrix& exact) const {
    const Layer& layer = *product.layer;
    const std::vector<int64_t>& channel = group.carried[product.carried].channel;
    std::vector<double> factors;
    for (const int64_t c : channel) factors.push_back(by[static_cast<size_t>(c)]);
    std::vector<float> weight = scaled_weight(layer, true, factors);
    quantize_by(at(layer, Slot::Weight), weight, layer.weight_shape);
    FloatMatrix rows = seen_.at(layer.input).rows;
    for (size_t i = 0; i < rows.data.size(); ++i) {
      rows.data[i] = static_cast<float>(rows.data[i] / factors[i % factors.size()]);
    }
    quantize_by(at(layer, Slot::Input), rows.data, {rows.rows, rows.cols});
    const FloatMatrix made = product_of(rows, weight, layer);
    double error = 0;
    for (size_t i = 0; i < made.data.size(); ++i) {
      const double gap = static_cast<double>(made.data[i]) - exact.data[i];
      error += gap * gap;
    }
    return error / std::max(sum_of_squares(exact.data), 1e-30);
  }

  /// For each channel of a source layer, the square of its error relative to the square of what it is.
  std::vector<double> source_errors(const ScaleGroup& group, const std::vector<double>& by) const {
    const Layer& layer = *group.layer;
    std::vector<double> down;
    for (const double factor : by) down.push_back(1 / factor);
    const FloatMatrix& rows = seen_.at(layer.input).rows;
    const std::vector<float> exact_weight = scaled_weight(layer, false, down);
    std::vector<float> weight = exact_weight;
    quantize_by(at(layer, Slot::Weight), weight, layer.weight_shape);
    FloatMatrix exact = product_of(rows, exact_weight, layer);
    FloatMatrix made = product_of(rows, weight, layer);
    const Quantizer* output = at(layer, Slot::Output);
    const bool clipped = output != nullptr && output->tensor != layer.output;  // behind a Relu
    const auto width = static_cast<size_t>(exact.cols);
    if (!layer.bias.empty()) {
      const std::vector<float> bias = graph_.find_initializer(layer.bias)->tensor.to_float();
      for (size_t i = 0; i < exact.data.size(); ++i) {
        const auto shift = static_cast<float>(bias[i % width] * down[i % width]);
        exact.data[i] += shift;
        made.data[i] += shift;
      }
    }
    for (size_t i = 0; clipped && i < exact.data.size(); ++i) {
      exact.data[i] = std::max(exact.data[i], 0.0F);
      made.data[i] = std::max(made.data[i], 0.0F);
    }
    quantize_by(output, made.data, {made.rows, made.cols});
    std::vector<double> errors(width), squares(width);
    for (size_t i = 0; i < made.data.size(); ++i) {
      const double gap = static_cast<double>(made.data[i]) - exact.data[i];
      errors[i % width] += gap * gap;
      squares[i % width] += static_cast<double>(exact.data[i]) * exact.data[i];
    }
    for (size_t c = 0; c < width; ++c) errors[c] /= std::max(squares[c], 1e-30);
    return errors;
  }

  /// What a product makes of the errors of the source, taken to be independent.
  double passed_on(const ScaleGroup& group, const ScaleGroup::Product& product, const std::vector<double>& errors,
                   const FloatMatrix& exact) const {
    const Layer& layer = *product.layer;
    const std::vector<int64_t>& channel = group.carried[product.carried].channel;
    const FloatMatrix& rows = seen_.at(layer.input).rows;
    std::vector<double> squares(channel.size()), reads(channel.size());
    for (size_t i = 0; i < rows.data.size(); ++i) {
      squares[i % channel.size()] += static_cast<double>(rows.data[i]) * rows.data[i];
    }
    const std::vector<float> weight = weight_of(layer).to_float();
    const auto width = static_cast<size_t>(layer.weight_shape[1]);
    const bool by_row = cols_first(layer);
    for (size_t i = 0; i < weight.size(); ++i) {
      reads[by_row ? i / width : i % width] += static_cast<double>(weight[i]) * weight[i];
    }
    double error = 0;
    for (size_t k = 0; k < channel.size(); ++k)
      error += errors[static_cast<size_t>(channel[k])] * squares[k] * reads[k];
    return error / std::max(sum_of_squares(exact.data), 1e-30);
  }

  ChannelSizes sizes_of(const ScaleGroup& group) const {
    const auto channels = static_cast<size_t>(group.channels);
    ChannelSizes sizes{std::vector<double>(channels), std::vector<double>(channels), std::vector<double>(channels)};
    const auto raise = [](double& to, double value) { to = std::max(to, value); };
    for (const ScaleGroup::Product& product : group.products) {
      const std::vector<int64_t>& channel = group.carried[product.carried].channel;
      const Seen& seen = seen_.at(product.layer->input);
      const std::vector<float> weight = weight_of(*product.layer).to_float();
      const auto width = static_cast<size_t>(product.layer->weight_shape[1]);
      const bool by_row = cols_first(*product.layer);
      for (size_t k = 0; k < channel.size(); ++k) {
        const auto c = static_cast<size_t>(channel[k]);
        raise(sizes.largest[c], static_cast<double>(seen.largest[k]));
        raise(sizes.mean[c], seen.magnitudes[k] / static_cast<double>(std::max<int64_t>(1, seen.count)));
      }
      for (size_t i = 0; i < weight.size(); ++i) {
        const auto k = by_row ? i / width : i % width;
        raise(sizes.weight[static_cast<size_t>(channel[k])], std::fabs(static_cast<double>(weight[i])));
      }
    }
    return sizes;
  }

  /// The factors with the least error; nothing where that is 1 for all.
  std::vector<double> best(const ScaleGroup& group) const {
    std::vector<FloatMatrix> exact;
    for (const ScaleGroup::Product& product : group.products) {
      const Layer& layer = *product.layer;
      exact.push_back(product_of(seen_.at(layer.input).rows, widened(weight_of(layer)).as<float>(), layer));
    }
    const bool with_source = source_matters(group);
    const auto error_of = [&](const std::vector<double>& by) {
      double error = 0;
      for (size_t i = 0; i < group.products.size(); ++i) error += product_error(group, group.products[i], by, exact[i]);
      if (!with_source) return error;
      const std::vector<double> errors = source_errors(group, by);
      for (size_t i = 0; i < group.products.size(); ++i) error += passed_on(group, group.products[i], errors, exact[i]);
      return error;
    };
    const ChannelSizes sizes = sizes_of(group);
    double least = error_of(std::vector<double>(static_cast<size_t>(group.channels), 1));
    std::vector<double> found;
    for (int64_t step = 0; step <= steps_; ++step) {
      std::vector<double> by = rule_(sizes, static_cast<double>(step) / static_cast<double>(steps_));
      for (size_t c = 0; c < by.size(); ++c) {
        // Channels that are always zero, or that no product of the group reads, stay as they are.
        if (!(sizes.largest[c] > 0) || !(sizes.weight[c] > 0)) by[c] = 1;
      }
      const double error = error_of(by);
      if (!(error < least)) continue;
      least = error;
      found = std::move(by);
    }
    return found;
  }

  void apply(const ScaleGroup& group, const std::vector<double>& by) {
    std::vector<double> down;
    for (const double factor : by) down.push_back(1 / factor);
    if (group.layer != nullptr) {
      const Layer& layer = *group.layer;
      store(graph_, layer.weight, Tensor::of(layer.weight_shape, scaled_weight(layer, false, down)));
      if (!layer.bias.empty()) divide_vector(*graph_.find_initializer(layer.bias), by);
    }
    for (const ScaleGroup::Vector& vector : group.vectors) divide_vector(own_vector(vector), by);
    for (const ScaleGroup::Product& product : group.products) {
      const Layer& layer = *product.layer;
      std::vector<double> up;
      for (const int64_t c : group.carried[product.carried].channel) up.push_back(by[static_cast<size_t>(c)]);
      store(graph_, layer.weight, Tensor::of(layer.weight_shape, scaled_weight(layer, true, up)));
    }
    for (const ScaleGroup::Carried& carried : group.carried) {
      note_rescaled(carried.value, carried.channel, down);
      const auto seen = seen_.find(carried.value);
      if (seen != seen_.end()) seen->second.divide(carried.channel, by);
    }
    // Between a product and the Add of its bias lies one more value.
    if (group.layer != nullptr && !group.layer->bias_node.empty()) {
      note_rescaled(group.layer->node, group.carried.front().channel, down);
    }
  }

  static void divide_vector(Initializer& vector, const std::vector<double>& by) {
    std::vector<float> values = vector.tensor.to_float();
    for (size_t c = 0; c < values.size(); ++c) values[c] = static_cast<float>(values[c] / by[c]);
    vector.tensor = Tensor::of(vector.tensor.shape(), values);
  }

  /// The constant, or a copy for this reader where others read it too.
  Initializer& own_vector(const ScaleGroup::Vector& vector) {
    int64_t edges = 0;
    for (const Node& node : graph_.nodes) edges += std::ranges::count(node.inputs, vector.name);
    if (edges == 1) return *graph_.find_initializer(vector.name);
    const std::string name = graph_.fresh_name(vector.name + "|scaled");
    Initializer copy = *graph_.find_initializer(vector.name);
    copy.name = name;
    graph_.initializers.push_back(std::move(copy));
    const auto node =
        std::ranges::find_if(graph_.nodes, [&](const Node& one) { return node_id(one) == vector.reader.node; });
    node->inputs[static_cast<size_t>(vector.reader.input)] = name;
    return graph_.initializers.back();
  }

  void note_rescaled(const std::string& value, const std::vector<int64_t>& channel, const std::vector<double>& down) {
    ChannelFactors& known = quantized_.rescaled[value];
    known.axis = -1;
    known.factors.resize(channel.size(), 1);
    for (size_t k = 0; k < channel.size(); ++k) {
      known.factors[k] = static_cast<float>(known.factors[k] * down[static_cast<size_t>(channel[k])]);
    }
  }

  const AlgorithmInput& input_;
  QuantizedModel& quantized_;
  Graph& graph_;
  const ScaleRule& rule_;
  int64_t steps_;
  std::map<std::string, Seen> seen_;  ///< by value
};

}  // namespace

void search_scales(const AlgorithmInput& input, const ScaleRule& rule, int64_t steps) {
  Search(input, rule, steps).run();
}

}  // namespace kaon
