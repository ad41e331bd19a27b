#include "debug/debug_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <tuple>

#include "base/error.h"
#include "base/text.h"
#include "debug/effects.h"
#include "debug/non_finite.h"
#include "debug/outputs.h"
#include "debug/quantizer_watch.h"
#include "debug/reading.h"
#include "engine/engine.h"
#include "graph/stored.h"
#include "quant/placement.h"
#include "quant/simulate.h"

namespace kaon {
namespace {

/// The layer of this name, or nullptr for a node that is no layer.
const Layer* find_layer(const QuantizedModel& quantized, const std::string& name) {
  const auto found = std::find_if(quantized.layers.begin(), quantized.layers.end(),
                                  [&](const Layer& layer) { return layer.name == name; });
  return found == quantized.layers.end() ? nullptr : &*found;
}

class Debugger {
 public:
  Debugger(const QuantizedModel& quantized, const DebugOptions& options)
      : quantized_(quantized),
        options_(options),
        names_(quantized),
        uses_(quantized.model.graph),
        original_uses_(quantized.original.graph),
        simulated_(simulate(quantized)) {
    for (const Quantizer& quantizer : quantized.quantizers) {
      if (!quantizer.enabled) continue;
      QuantizerWatch* watch = wanted(quantizer) ? add(quantizer) : nullptr;
      if (quantizer.is_activation()) by_output_[simulated_value(quantized_, quantizer)] = watch;
    }
    // The Casts of 16-bit weights go where their quantized values come.
    const Uses simulated_uses(simulated_.graph);
    for (const Node& node : quantized.model.graph.nodes) {
      const bool gone = node.op == "Cast" && find_stored(quantized.model.graph, node.outputs[0]) != nullptr &&
                        simulated_uses.producer(node.outputs[0]) < 0;
      if (!gone) nodes_before_.push_back(&node);
    }
    for (const Layer& layer : quantized.layers) {
      const Quantizer* weight = quantized.find(layer.name, Slot::Weight);
      const Quantizer* output = quantized.find(layer.name, Slot::Output);
      if (weight == nullptr || !weight->enabled || output == nullptr || !output->enabled) continue;
      const auto watch = by_output_.find(simulated_value(quantized_, *output));
      if (watch != by_output_.end() && watch->second != nullptr) output_watch_[layer.node] = watch->second;
    }
    if (watches_.empty()) {
      fail(ErrorCode::InvalidInput, "layers", "no quantized layer matches '{}'", options.layers);
    }
  }

  DebugReport run(const Dataset* data) {
    const auto watched = std::find_if(watches_.begin(), watches_.end(),
                                      [](const auto& watch) { return watch->quantizer().is_activation(); });
    if (data == nullptr && watched != watches_.end()) {
      fail(ErrorCode::InvalidConfig, (*watched)->quantizer().label(),
           "this value is known only while the model runs: give data to debug on");
    }
    constants();
    if (data != nullptr && !stopped()) activations(*data);
    if (data != nullptr && options_.effects && !report_.nan) effects(*data);
    return finish();
  }

 private:
  bool wanted(const Served& served) const { return glob_match(options_.layers, served.layer); }
  bool wanted(const Quantizer& quantizer) const {
    return std::any_of(quantizer.serves.begin(), quantizer.serves.end(),
                       [&](const Served& served) { return wanted(served); });
  }
  bool stopped() const { return options_.nan && report_.nan.has_value(); }

  QuantizerWatch* add(const Quantizer& quantizer) {
    ChannelPlace place = ChannelPlace::ByRank;
    for (const Served& served : quantizer.serves) {
      const Layer* layer = find_layer(quantized_, served.layer);
      if (layer == nullptr) continue;
      // A product may read a value only after it was flattened; then its channels are not the last axis yet.
      const bool itself = served.slot == Slot::Output || layer->input == quantizer.tensor;
      if (layer->op == "MatMul" && itself) place = ChannelPlace::Last;
      if (is_convolution(*layer)) place = ChannelPlace::Second;
    }
    const bool histograms = options_.act_hist || !quantizer.is_activation();
    watches_.push_back(std::make_unique<QuantizerWatch>(quantizer, place, histograms));
    return watches_.back().get();
  }

  void note(std::optional<NonFiniteAt> at, int64_t batch, bool float_run) {
    if (!at || report_.nan) return;
    at->batch = batch;
    at->float_run = float_run;
    report_.nan = std::move(at);
  }

  void constants() {
    for (const Layer& layer : quantized_.layers) {
      for (const std::string& name : {layer.weight, layer.bias}) {
        const Initializer* constant = name.empty() ? nullptr : find_stored(quantized_.model.graph, name);
        if (constant == nullptr) continue;
        report_.parameters += constant->tensor.size();
        if (options_.nan) note(names_.find(name, constant->tensor), -1, true);
      }
    }
    for (const auto& watch : watches_) {
      const Quantizer& quantizer = watch->quantizer();
      if (quantizer.is_activation()) continue;
      const Tensor rounded = widened(constant_of(quantized_, quantizer.tensor));
      // A bias is corrected on purpose; a weight on its grid is still to be compared with what it was.
      const bool bias = quantizer.kind == Slot::Bias;
      const Tensor exact = bias ? rounded : widened(find_stored(quantized_.model.graph, quantizer.tensor)->tensor);
      const Layer* layer = find_layer(quantized_, quantizer.serves.front().layer);
      const bool by_layer = quantizer.kind == Slot::Weight && layer != nullptr;
      watch->see_constant(exact, rounded, by_layer ? channel_axis(quantized_.model.graph, *layer) : 0);
      if (watch->non_finite() > 0) note(names_.find(quantizer.tensor, exact), -1, true);
    }
  }

  void activations(const Dataset& data) {
    const int64_t batch = batch_for(quantized_.model.graph, options_.batch, data);
    Engine exact(quantized_.original);
    Engine simulated(simulated_);
    CarriedState exact_state(data, quantized_.original.graph), simulated_state(data, simulated_.graph);
    OutputWatch outputs(quantized_.original.graph);
    options_.progress->begin("debugging", data.size());
    for (int64_t first = 0; first < data.size() && !stopped(); first += batch) {
      const Batch samples = data.read(first, std::min(batch, data.size() - first));
      check_finite(samples, first);
      Frame float_run = exact.start(exact_state.enter(samples));
      Frame quantized_run = simulated.start(simulated_state.enter(samples));
      one_batch(float_run, quantized_run, report_.batches);
      if (!stopped()) {
        float_run.finish();
        exact_state.leave(float_run.outputs());
        simulated_state.leave(quantized_run.outputs());
        outputs.see(samples, first, std::min(batch, data.size() - first), float_run.outputs(), quantized_run.outputs());
      }
      report_.samples += std::min(batch, data.size() - first);
      ++report_.batches;
      options_.progress->at(report_.samples);
    }
    options_.progress->end();
    report_.outputs = outputs.finish();
  }

  /// Both models node by node: a value of the float run is there when the quantized run makes its own, and neither is
  /// kept longer than the model itself needs it.
  void one_batch(Frame& exact, Frame& simulated, int64_t batch) {
    auto before = nodes_before_.begin();
    for (const Node& node : simulated_.graph.nodes) {
      if (stopped()) return;
      const auto quantizer = by_output_.find(node.outputs[0]);
      if (quantizer != by_output_.end()) {
        const Tensor input = quantizer->second == nullptr ? Tensor() : simulated.value(node.inputs[0]);
        simulated.step();
        if (quantizer->second == nullptr) continue;
        compare(*quantizer->second, exact, input, simulated.value(node.outputs[0]), batch);
        continue;
      }
      simulated.step();
      const Node& unquantized = **before++;
      const int64_t twin = original_uses_.producer(unquantized.outputs[0]);
      if (twin >= exact.position()) {
        exact.run_until(twin);
        const std::optional<Tensor> own = with_own_weight(exact, unquantized, node);
        exact.step();
        if (own) split_error(exact, simulated, unquantized, node, *own);
      }
      if (options_.nan) look(exact, simulated, unquantized, node, batch);
    }
  }

  /// What a layer makes of the float model's input with its quantized weight and bias; nothing where nobody asks.
  std::optional<Tensor> with_own_weight(const Frame& exact, const Node& unquantized, const Node& node) const {
    const auto found = output_watch_.find(unquantized.outputs[0]);
    if (found == output_watch_.end()) return std::nullopt;
    std::vector<Tensor> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Initializer* constant = simulated_.graph.find_initializer(node.inputs[i]);
      const std::string& value = unquantized.inputs[i];
      if (value.empty())
        inputs.emplace_back();
      else
        inputs.push_back(constant != nullptr ? constant->tensor : in_units_of_model(value, exact.value(value)));
    }
    return evaluate_node(node, simulated_, inputs)[0];
  }

  /// Of the error that a layer's output has, how much its own weight makes.
  void split_error(const Frame& exact, const Frame& simulated, const Node& unquantized, const Node& node,
                   const Tensor& own) {
    const std::string& value = unquantized.outputs[0];
    const Tensor reference = in_units_of_model(value, exact.value(value));
    const Tensor all = simulated.value(node.outputs[0]);
    if (reference.shape() != all.shape() || reference.type() != DType::Float32) return;
    ErrorSplit& split = splits_[value];
    ErrorMetrics by_weight, by_all;
    by_weight.update(own.as<float>(), reference.as<float>());
    by_all.update(all.as<float>(), reference.as<float>());
    split.weight += by_weight.sum_squared_error;
    split.all += by_all.sum_squared_error;
    const double part = split.all == 0 ? 0 : std::min(1.0, split.weight / split.all);
    output_watch_.at(value)->see_weight_part(part);
  }

  void compare(QuantizerWatch& watch, const Frame& exact, const Tensor& input, const Tensor& output, int64_t batch) {
    const std::string& value = watch.quantizer().tensor;
    const Tensor reference = in_units_of_model(value, exact.value(value));
    if (reference.shape() != input.shape()) {
      fail(ErrorCode::Unsupported, watch.quantizer().label(),
           "the value has the shape {} in the float run and {} in the quantized one; they cannot be compared",
           to_string(reference.shape()), to_string(input.shape()));
    }
    report_.observed += input.size();
    const int64_t before = watch.non_finite();
    watch.see(input, output, reference);
    if (watch.non_finite() == before) return;
    note(names_.find(value, reference), batch, true);
    note(names_.find(value, input), batch, false);
  }

  Tensor with_zeros_around(const Tensor& value, const std::vector<int64_t>& pads) const {
    if (pads.empty()) return value;
    Node pad;
    pad.op = "Pad";
    pad.inputs = {"value", "pads"};
    pad.outputs = {"padded"};
    return evaluate_node(pad, quantized_.model, std::array{value, Tensor::of<int64_t>({std::ssize(pads)}, pads)}).at(0);
  }

  /// A value of the original model as the transformed one has it.
  Tensor in_units_of_model(const std::string& value, const Tensor& original) const {
    const auto found = quantized_.rescaled.find(value);
    if (found == quantized_.rescaled.end()) return original;
    const ChannelFactors& units = found->second;
    const Tensor around = with_zeros_around(original, units.pads);
    const int64_t axis = units.axis < 0 ? units.axis + around.rank() : units.axis;
    const auto inner =
        static_cast<size_t>(element_count(std::span(around.shape()).subspan(static_cast<size_t>(axis) + 1)));
    std::vector<float> values = around.to_float();
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t channel = i / inner % units.factors.size();
      values[i] = values[i] * units.factors[channel] - (units.shifts.empty() ? 0.0F : units.shifts[channel]);
    }
    return Tensor::of(around.shape(), values);
  }

  /// Looks for NaN and Inf in what a node made in both runs; `node` is `unquantized` in the simulated model.
  void look(const Frame& exact, const Frame& simulated, const Node& unquantized, const Node& node, int64_t batch) {
    for (size_t i = 0; i < unquantized.outputs.size(); ++i) {
      const std::string& name = unquantized.outputs[i];
      if (uses_.consumers(name).empty() && !uses_.is_output(name)) continue;
      if (original_uses_.producer(name) >= 0) note(names_.find(name, exact.value(name)), batch, true);
      note(names_.find(name, simulated.value(node.outputs[i])), batch, false);
    }
  }

  DebugReport finish() {
    for (const auto& watch : watches_) {
      report_.quantizers.push_back(watch->finish());
      QuantizerDebug& made = report_.quantizers.back();
      for (const Served& served : watch->quantizer().serves) {
        if (!wanted(served)) continue;
        const Layer* layer = find_layer(quantized_, served.layer);
        report_.rows.push_back(
            {served.layer, served.slot, layer == nullptr ? "" : layer->op, report_.quantizers.size() - 1, 0});
      }
      made.reading = read_quantizer(made);
    }
    order_rows();
    rank_rows();
    report_.layers = std::ssize(quantized_.layers);
    report_.skipped = quantized_.skipped;
    report_.algorithms = quantized_.algorithms;
    return std::move(report_);
  }

  /// By the node, then by the slot.
  void order_rows() {
    std::map<std::string, int64_t> places;
    const auto& nodes = quantized_.model.graph.nodes;
    for (size_t i = 0; i < nodes.size(); ++i) places.insert({plain_name(nodes[i]), static_cast<int64_t>(i)});
    for (const Layer& layer : quantized_.layers) places[layer.name] = uses_.producer(layer.node);
    const auto key = [&](const DebugRow& row) { return std::tuple(places[row.layer], row.layer, row.slot); };
    std::stable_sort(report_.rows.begin(), report_.rows.end(),
                     [&](const DebugRow& a, const DebugRow& b) { return key(a) < key(b); });
    for (size_t i = 0; i < report_.rows.size(); ++i) report_.rows[i].order = static_cast<int64_t>(i);
  }

  /// Which quantizers the outputs suffer from.
  void effects(const Dataset& data) {
    const OutputEffects found = measure_effects(quantized_, data, options_.batch, *options_.progress);
    report_.ranked = found.samples;
    report_.output_error = found.all;
    if (found.samples == 0) return;
    for (const auto& watch : watches_) {
      const int64_t id = watch->quantizer().id;
      watch->see_effect(found.gain(id), found.effects[static_cast<size_t>(id)].alone);
    }
  }

  void rank_rows() {
    std::vector<double> badness;
    for (const QuantizerDebug& quantizer : report_.quantizers) {
      const double error = quantizer.output_gain.value_or(quantizer.channel_error());
      badness.push_back(quantizer.non_finite() > 0 ? INFINITY : error);
    }
    std::stable_sort(report_.rows.begin(), report_.rows.end(),
                     [&](const DebugRow& a, const DebugRow& b) { return badness[a.quantizer] > badness[b.quantizer]; });
  }

  const QuantizedModel& quantized_;
  const DebugOptions& options_;
  ValueNames names_;
  Uses uses_;           ///< of the transformed model
  Uses original_uses_;  ///< of the model before
  Model simulated_;
  std::vector<const Node*> nodes_before_;  ///< those of the transformed model that are in the simulated one
  std::vector<std::unique_ptr<QuantizerWatch>> watches_;
  /// By what they make in the simulated model; null for those nobody asked for.
  std::map<std::string, QuantizerWatch*> by_output_;
  struct ErrorSplit {
    double weight = 0;  ///< Σ of squared errors that the layer's own weight makes
    double all = 0;
  };
  /// By what the node of a layer with a quantized weight makes: the quantizer behind it.
  std::map<std::string, QuantizerWatch*> output_watch_;
  std::map<std::string, ErrorSplit> splits_;
  DebugReport report_;
};

}  // namespace

DebugReport debug(const QuantizedModel& quantized, const Dataset& data, const DebugOptions& options) {
  return Debugger(quantized, options).run(&data);
}

DebugReport debug(const QuantizedModel& quantized, const DebugOptions& options) {
  return Debugger(quantized, options).run(nullptr);
}

}  // namespace kaon
