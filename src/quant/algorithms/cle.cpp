// Cross-layer equalization (Nagel et al. 2019, arXiv:1906.04721): where a layer's output reaches the next layers
// through operators that a positive factor for each channel passes through, channel c of the first weight is divided by
// s and what reads it multiplied by s. The function stays as it is; s is chosen so that the channels of both weights
// need ranges of one size. Pairs are gone through again and again until nothing changes, which also serves depthwise
// triples. What channels have in common with their biases can go into the biases of the next layers (section 4.1.3
// there); here the bounds of what is between go with it, so that the function stays the same for all data.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/op_facts.h"
#include "graph/clip.h"
#include "graph/node_id.h"
#include "graph/stored.h"
#include "quant/algorithm.h"
#include "quant/placement.h"

namespace kaon {

namespace {

/// A layer's weight as numbers, with the channels that each of them joins.
struct Weight {
  const Layer* layer = nullptr;
  std::vector<float> values;
  std::vector<int32_t> out, in;  ///< by element

  std::vector<float> ranges(bool of_inputs, int64_t channels) const {
    std::vector<float> largest(static_cast<size_t>(channels));
    const std::vector<int32_t>& channel = of_inputs ? in : out;
    for (size_t i = 0; i < values.size(); ++i) {
      float& range = largest[static_cast<size_t>(channel[i])];
      range = std::max(range, std::fabs(values[i]));
    }
    return largest;
  }
  void scale(bool inputs, const std::vector<float>& factors) {
    const std::vector<int32_t>& channel = inputs ? in : out;
    for (size_t i = 0; i < values.size(); ++i) values[i] *= factors[static_cast<size_t>(channel[i])];
  }
};

/// A layer and those that alone read what it makes.
struct Pair {
  size_t first = 0;
  std::vector<size_t> next;
  std::vector<std::string> values;  ///< between them: the first one's output, and what is made of it on the way
  std::vector<std::string> clips;   ///< those of them that a Clip with bounds other than 0 and infinity makes
  int64_t channels = 0;
  std::vector<float> factors;  ///< of the values, so far
  std::vector<float> shifts;   ///< what the next layers' biases take over, in the new units; empty: nothing
  std::vector<int64_t> pads;   ///< of what reads shifted values, as a Pad has them; empty: none
};

/// What calibration data showed of a pair's values.
struct Seen {
  std::vector<float> largest;   ///< by channel, of what the next layers read
  std::vector<float> least;     ///< the smallest, with its sign
  std::vector<double> sums;     ///< by channel, over `count` values
  std::vector<double> squares;  ///< the same
  int64_t count = 0;
  double input_squares = 0;  ///< of what the first layer reads
  int64_t input_count = 0;
};

class Equalizer {
 public:
  explicit Equalizer(const AlgorithmInput& input)
      : input_(input), quantized_(input.quantized), graph_(input.quantized.model.graph), uses_(graph_) {
    for (const Layer& layer : quantized_.layers) {
      if (!layer.output.empty()) by_node_[layer.node] = weights_.size(), load(layer);
    }
    for (size_t i = 0; i < weights_.size(); ++i) find_pair(i);
  }

  void run() {
    if (pairs_.empty()) {
      input_.note("no two layers are joined by operators that a factor for each channel passes through");
      return;
    }
    watch();
    constexpr double kSettled = 1e-3;
    double largest = 0;
    for (int round = 0; round < static_cast<int>(input_.option("iterations")); ++round) {
      largest = 0;
      for (size_t i = 0; i < pairs_.size(); ++i) largest = std::max(largest, equalize(pairs_[i], seen_[i]));
      if (largest < kSettled) break;
    }
    store();
  }

 private:
  const Node& node_of(const Layer& layer) const { return node_by_id(graph_, layer.node); }

  /// Weights that cannot be changed for one layer alone stay empty.
  void load(const Layer& layer) {
    Weight& weight = weights_.emplace_back();
    weight.layer = &layer;
    const Initializer* constant = find_stored(graph_, layer.weight);
    const bool product = layer.op == "Gemm" || layer.op == "MatMul";
    if (constant == nullptr || !is_float(constant->tensor)) return;
    if (!(layer.op == "Conv" || (product && layer.weight_input == 1 && layer.weight_shape.size() == 2))) return;
    if (uses_.consumers(layer.weight).size() != 1 || uses_.is_output(layer.weight)) return;
    if (!layer.bias.empty() && (uses_.consumers(layer.bias).size() != 1 || !float_bias(layer))) return;
    const Shape& shape = layer.weight_shape;
    const int64_t group = layer.op == "Conv" ? node_of(layer).get_int("group", 1) : 1;
    const auto out_axis = static_cast<size_t>(channel_axis(graph_, layer));
    const auto in_axis = static_cast<size_t>(input_axis(graph_, layer));
    const int64_t outs = shape[out_axis];
    if (group < 1 || outs % group != 0) return;
    weight.values = constant->tensor.to_float();
    const auto inner = [&](size_t axis) { return element_count(std::span(shape).subspan(axis + 1)); };
    const int64_t out_inner = inner(out_axis);
    const int64_t in_inner = inner(in_axis);
    for (int64_t i = 0; i < std::ssize(weight.values); ++i) {
      const int64_t o = i / out_inner % outs;
      const int64_t k = i / in_inner % shape[in_axis];
      weight.out.push_back(static_cast<int32_t>(o));
      weight.in.push_back(static_cast<int32_t>(o / (outs / group) * shape[in_axis] + k));
    }
  }

  bool float_bias(const Layer& layer) const {
    const Initializer* bias = graph_.find_initializer(layer.bias);
    const int64_t outs = layer.weight_shape[static_cast<size_t>(channel_axis(graph_, layer))];
    return bias != nullptr && bias->tensor.type() == DType::Float32 && bias->tensor.size() == outs;
  }

  bool usable(size_t weight) const { return !weights_[weight].values.empty(); }

  void find_pair(size_t first) {
    if (!usable(first)) return;
    const Layer& layer = *weights_[first].layer;
    Pair pair;
    pair.first = first;
    pair.channels = layer.weight_shape[static_cast<size_t>(channel_axis(graph_, layer))];
    pair.factors.assign(static_cast<size_t>(pair.channels), 1);
    if (follow(layer.output, layer, pair) && !pair.next.empty()) pairs_.push_back(std::move(pair));
  }

  /// Whether all that reads `value` is a layer, or passes factors on to layers.
  bool follow(const std::string& value, const Layer& first, Pair& pair) {
    if (uses_.is_output(value)) return false;
    pair.values.push_back(value);
    for (const int64_t index : uses_.consumers(value)) {
      const Node& reader = graph_.nodes[static_cast<size_t>(index)];
      const auto next = by_node_.find(reader.outputs[0]);
      if (next != by_node_.end()) {
        const Layer& layer = *weights_[next->second].layer;
        // Rows of a product are channels only where the first layer is one, too.
        const bool same_axis = is_convolution(layer) == is_convolution(first);
        if (!usable(next->second) || layer.input != value || !same_axis) return false;
        const auto& in = weights_[next->second].in;
        if (*std::max_element(in.begin(), in.end()) + 1 != pair.channels) return false;
        pair.next.push_back(next->second);
        continue;
      }
      if (reader.outputs.size() != 1 || reader.inputs[0] != value) return false;
      const bool passes = facts_of(reader, graph_).homogeneous == Homogeneous::Channels;
      if (!passes && !clips_channels(reader, first)) return false;
      if (!passes) pair.clips.push_back(reader.outputs[0]);
      if (!follow(reader.outputs[0], first, pair)) return false;
    }
    return true;
  }

  std::optional<ClipBounds> bounds_of(const Node& node) const {
    return clip_bounds(node, [&](size_t input) -> std::optional<float> {
      const Initializer* constant = graph_.find_initializer(node.inputs[input]);
      if (constant == nullptr || constant->tensor.size() != 1) return std::nullopt;
      return constant->tensor.to_float()[0];
    });
  }

  /// A Clip can have bounds for each channel instead.
  bool clips_channels(const Node& node, const Layer& first) const {
    return node.op == "Clip" && node.domain.empty() && is_convolution(first) && first.weight_shape.size() == 4 &&
           bounds_of(node).has_value();
  }

  /// What lies between the layers of each pair, by channel, and what its first layer reads.
  void watch() {
    Hooks hooks;
    seen_.resize(pairs_.size());
    for (size_t i = 0; i < pairs_.size(); ++i) {
      Seen& seen = seen_[i];
      seen.largest.assign(static_cast<size_t>(pairs_[i].channels), 0);
      seen.least.assign(seen.largest.size(), INFINITY);
      seen.sums.assign(seen.largest.size(), 0);
      seen.squares.assign(seen.largest.size(), 0);
      const Layer& first = *weights_[pairs_[i].first].layer;
      const bool by_last = !is_convolution(first);
      hooks.watch_tensor(pairs_[i].values.back(), [&seen, by_last](const Shown& shown) {
        const Tensor& tensor = shown.tensor;
        const auto inner = by_last ? 1 : static_cast<size_t>(element_count(std::span(tensor.shape()).subspan(2)));
        const std::span<const float> values = tensor.as<float>();
        for (size_t k = 0; k < values.size(); ++k) {
          const size_t channel = k / inner % seen.largest.size();
          seen.largest[channel] = std::max(seen.largest[channel], std::fabs(values[k]));
          seen.least[channel] = std::min(seen.least[channel], values[k]);
          seen.sums[channel] += static_cast<double>(values[k]);
          seen.squares[channel] += static_cast<double>(values[k]) * values[k];
        }
        seen.count += std::ssize(values) / std::ssize(seen.largest);
      });
      const auto& inputs = graph_.inputs;
      if (std::ranges::any_of(inputs, [&](const ValueInfo& one) { return one.name == first.input; })) continue;
      hooks.watch(first.input, [&seen](const std::string&, std::span<const float> values) {
        for (const float value : values) seen.input_squares += static_cast<double>(value) * value;
        seen.input_count += std::ssize(values);
      });
    }
    Engine engine(quantized_.model);
    const Dataset& data = *input_.data;
    const int64_t batch = batch_for(graph_, input_.settings.batch, data);
    input_.settings.progress->begin("looking at activations", data.size());
    for (int64_t at = 0; at < data.size(); at += batch) {
      engine.run(data.read(at, std::min(batch, data.size() - at)).inputs, hooks);
      input_.settings.progress->at(std::min(at + batch, data.size()));
    }
    input_.settings.progress->end();
  }

  /// The pads of what reads the pair's values where a shift of them can be made up for: nothing else but a Relu or a
  /// Clip from 0 between, biases, and zeros beyond the edge in one way at most.
  std::optional<std::vector<int64_t>> pads_of_readers(const Pair& pair) {
    if (pair.values.size() > 2 || weights_[pair.first].layer->bias.empty()) return std::nullopt;
    const bool activation = pair.values.size() == 2;
    if (activation) {
      const std::optional<ClipBounds> bounds = bounds_of(node_that_makes(pair.values.back()));
      if (!bounds || bounds->low != 0) return std::nullopt;
    }
    std::vector<int64_t> pads;
    for (const size_t next : pair.next) {
      const Layer& layer = *weights_[next].layer;
      if (layer.bias.empty()) return std::nullopt;
      if (!is_convolution(layer)) continue;
      const Node& node = node_of(layer);
      const std::string kind = node.get_string("auto_pad", "NOTSET");
      const std::vector<int64_t> own = node.get_ints("pads");
      if (kind != "NOTSET" && kind != "VALID") return std::nullopt;
      if (kind == "VALID" || std::ranges::all_of(own, [](int64_t pad) { return pad == 0; })) continue;
      // The zeros are made before the activation, which has one bound for each channel then.
      if (!activation || pair.next.size() != 1 || own.size() != 4) return std::nullopt;
      pads = {0, 0, own[0], own[1], 0, 0, own[2], own[3]};
    }
    return pads;
  }

  /// What an activation's quantizer is better off without. Floats round in proportion to the value, and their zero lies
  /// best in the middle of a channel; integers have no use for what is below the least value.
  void choose_shifts(Pair& pair, const Seen& seen) {
    const auto quantizer = std::ranges::find_if(quantized_.quantizers, [&](const Quantizer& one) {
      return one.is_activation() && one.tensor == pair.values.back();
    });
    if (quantizer == quantized_.quantizers.end() || seen.count == 0) return;
    const FormatKind kind = format(quantizer->spec.format).kind;
    const std::optional<std::vector<int64_t>> pads = pads_of_readers(pair);
    const bool floats = kind == FormatKind::Float;
    // An integer's range would have to reach down to what is beyond the edge.
    if (!pads || (!floats && (kind != FormatKind::Integer || !pads->empty() || pair.values.size() != 2))) return;
    constexpr double kHigh = 3;  // times the variance; below, exact zeros and bounds may be worth more
    std::vector<float> shifts(seen.sums.size());
    for (size_t c = 0; c < shifts.size(); ++c) {
      const double mean = seen.sums[c] / static_cast<double>(seen.count);
      const double variance = seen.squares[c] / static_cast<double>(seen.count) - mean * mean;
      const double shift = !floats ? seen.least[c] : mean * mean > kHigh * variance ? mean : 0;
      shifts[c] = static_cast<float>(shift) * pair.factors[c];
    }
    if (std::ranges::all_of(shifts, [](float shift) { return shift == 0; })) return;
    pair.shifts = std::move(shifts);
    pair.pads = *pads;
  }

  void add_to_bias(const Layer& layer, std::span<const double> by) {
    Initializer& bias = *graph_.find_initializer(layer.bias);
    std::vector<float> values = bias.tensor.to_float();
    for (size_t c = 0; c < values.size(); ++c) values[c] = static_cast<float>(values[c] + by[c]);
    bias.tensor = Tensor::of(bias.tensor.shape(), values);
  }

  /// Once all weights and biases have their new units.
  void absorb() {
    int64_t layers = 0, channels = 0;
    for (const Pair& pair : pairs_) {
      if (pair.shifts.empty()) continue;
      ++layers;
      channels += std::ranges::count_if(pair.shifts, [](float shift) { return shift != 0; });
      std::vector<double> down;
      for (const float shift : pair.shifts) down.push_back(-static_cast<double>(shift));
      add_to_bias(*weights_[pair.first].layer, down);
      for (const size_t next : pair.next) {
        const Weight& weight = weights_[next];
        std::vector<double> up(static_cast<size_t>(*std::ranges::max_element(weight.out)) + 1);
        for (size_t i = 0; i < weight.values.size(); ++i) {
          up[static_cast<size_t>(weight.out[i])] +=
              static_cast<double>(weight.values[i]) * pair.shifts[static_cast<size_t>(weight.in[i])];
        }
        add_to_bias(*weight.layer, up);
      }
    }
    if (channels > 0) {
      input_.note("biases of {} channels of {} layers went into the next layers", channels, layers);
    } else {
      input_.note("no bias could be absorbed: no quantized activation between two layers with biases gains by it");
    }
  }

  /// The largest step it took, as |log s|. With R the range that both weights need at least, s may lie between r1 / R
  /// and R / r2; in there it is where rounding the one weight and rounding the other hurt the output least.
  double equalize(Pair& pair, const Seen& seen) {
    const Weight& first = weights_[pair.first];
    const std::vector<float> before = first.ranges(false, pair.channels);
    std::vector<float> after(before.size());
    std::vector<double> reads(before.size());  // Σ of squares of the weights that read a channel
    double outputs = 0;
    for (const size_t next : pair.next) {
      const Weight& weight = weights_[next];
      const std::vector<float> ranges = weight.ranges(true, pair.channels);
      for (size_t c = 0; c < after.size(); ++c) after[c] = std::max(after[c], ranges[c]);
      for (size_t i = 0; i < weight.values.size(); ++i) {
        reads[static_cast<size_t>(weight.in[i])] += static_cast<double>(weight.values[i]) * weight.values[i];
      }
      outputs += static_cast<double>(weight.values.size()) / static_cast<double>(pair.channels);
    }
    double range = 0;
    float widest = 0;  // of the activation now
    for (size_t c = 0; c < before.size(); ++c) {
      range = std::max(range, std::sqrt(static_cast<double>(before[c]) * after[c]));
      widest = std::max(widest, seen.largest[c] * pair.factors[c]);
    }
    if (range == 0) return 0;
    const double terms = static_cast<double>(first.values.size()) / static_cast<double>(pair.channels);
    const double arriving = seen.input_count == 0 ? 1 : seen.input_squares / static_cast<double>(seen.input_count);
    double largest = 0;
    std::vector<float> down(before.size()), up(before.size());
    for (size_t c = 0; c < before.size(); ++c) {
      const double square =
          seen.squares[c] / static_cast<double>(std::max<int64_t>(seen.count, 1)) * pair.factors[c] * pair.factors[c];
      const double mine = reads[c] * terms * arriving;
      const double theirs = square * outputs;
      double low = before[c] / range;
      const double high = after[c] > 0 ? range / after[c] : INFINITY;
      if (input_.flag("activations") && widest > 0) {
        low = std::max(low, static_cast<double>(seen.largest[c]) * pair.factors[c] / widest);
      }
      double step = mine > 0 && theirs > 0 ? std::pow(theirs / mine, 0.25) : 1;
      step = low > high ? std::sqrt(low * high) : std::clamp(step, low, high);
      if (!(step > 0) || !std::isfinite(step)) step = 1;
      largest = std::max(largest, std::fabs(std::log(step)));
      up[c] = static_cast<float>(step);
      down[c] = static_cast<float>(1 / step);
      pair.factors[c] *= down[c];
    }
    weights_[pair.first].scale(false, down);
    for (const size_t next : pair.next) weights_[next].scale(true, up);
    return largest;
  }

  /// Weights with the factors that came out, rounded once instead of in every round.
  void scale_at_once() {
    std::vector<std::vector<double>> factors(weights_.size());
    const auto scale = [&](size_t index, bool inputs, const Pair& pair) {
      const Weight& weight = weights_[index];
      factors[index].resize(weight.values.size(), 1);
      const std::vector<int32_t>& channel = inputs ? weight.in : weight.out;
      for (size_t i = 0; i < weight.values.size(); ++i) {
        const double factor = static_cast<double>(pair.factors[static_cast<size_t>(channel[i])]);
        factors[index][i] *= inputs ? 1 / factor : factor;
      }
    };
    for (const Pair& pair : pairs_) {
      scale(pair.first, false, pair);
      for (const size_t next : pair.next) scale(next, true, pair);
    }
    for (size_t index = 0; index < weights_.size(); ++index) {
      if (factors[index].empty()) continue;
      Weight& weight = weights_[index];
      const std::vector<float> before = find_stored(graph_, weight.layer->weight)->tensor.to_float();
      for (size_t i = 0; i < before.size(); ++i) weight.values[i] = static_cast<float>(before[i] * factors[index][i]);
      kaon::store(graph_, weight.layer->weight, Tensor::of(weight.layer->weight_shape, weight.values));
    }
  }

  void store() {
    int64_t clips = 0, opened = 0;
    scale_at_once();
    for (size_t i = 0; i < pairs_.size(); ++i) {
      Pair& pair = pairs_[i];
      if (input_.flag("absorb")) choose_shifts(pair, seen_[i]);
      const Layer& layer = *weights_[pair.first].layer;
      if (!layer.bias.empty()) {
        Initializer& bias = *graph_.find_initializer(layer.bias);
        std::vector<float> values = bias.tensor.to_float();
        for (size_t c = 0; c < values.size(); ++c) values[c] *= pair.factors[c];
        bias.tensor = Tensor::of(bias.tensor.shape(), values);
      }
      for (const std::string& value : pair.values) {
        quantized_.rescaled[value] = {is_convolution(layer) ? 1 : -1, pair.factors, pair.shifts, {}};
      }
      quantized_.rescaled[pair.values.back()].pads = pair.pads;
      // Between a product and the Add of its bias lies one more value.
      if (!layer.bias_node.empty()) quantized_.rescaled[layer.node] = {-1, pair.factors, {}, {}};
      for (const std::string& clip : pair.clips) {
        if (input_.flag("relu") && never_reached(clip, pair, seen_[i])) {
          open_above(clip), ++opened;
        } else {
          bound_channels(clip, pair), ++clips;
        }
      }
      if (pair.shifts.empty() || pair.values.size() < 2) continue;
      if (node_that_makes(pair.values[1]).op == "Relu") bound_channels(pair.values[1], pair);
      if (!pair.pads.empty()) pad_before(pair);
    }
    input_.report.changed = std::ssize(pairs_);
    if (input_.flag("absorb")) absorb();
    if (clips > 0) input_.note("{} Clips have bounds for each channel now (Max and Min)", clips);
    if (opened > 0) input_.note("{} Clips are Relus now: no calibration data reached their upper bound", opened);
  }

  Node& node_that_makes(const std::string& value) {
    return *std::ranges::find_if(graph_.nodes, [&](const Node& node) { return node.outputs[0] == value; });
  }

  /// Whether the data stay above 0 and below the bound of the Clip that makes `value`.
  bool never_reached(const std::string& value, const Pair& pair, const Seen& seen) {
    const ClipBounds bounds = *bounds_of(node_that_makes(value));
    return bounds.low == 0 && value == pair.values.back() &&
           std::ranges::all_of(seen.largest, [&](float largest) { return largest < bounds.high; });
  }

  void open_above(const std::string& value) {
    Node& clip = node_that_makes(value);
    clip.op = "Relu";
    clip.inputs.resize(1);
    clip.attributes.clear();
  }

  /// The Relu or Clip that makes `value` as a Max and a Min with one bound for each channel.
  void bound_channels(const std::string& value, const Pair& pair) {
    const auto clip = std::ranges::find_if(graph_.nodes, [&](const Node& node) { return node.outputs[0] == value; });
    const ClipBounds bounds = *bounds_of(*clip);
    const bool limited = clip->op == "Clip";
    const std::string inside = limited ? graph_.fresh_name(value + "|low") : value;
    const auto bound = [&](const char* suffix, float limit) {
      std::vector<float> limits;
      for (size_t c = 0; c < pair.factors.size(); ++c) {
        const float shift = pair.shifts.empty() ? 0.0F : pair.shifts[c];
        limits.push_back(std::clamp(limit * pair.factors[c] - shift, -3e38F, 3e38F));
      }
      std::string name = graph_.fresh_name(value + suffix);
      const bool last = !is_convolution(*weights_[pair.first].layer);
      graph_.initializers.push_back(
          {name, Tensor::of<float>(last ? Shape{pair.channels} : Shape{1, pair.channels, 1, 1}, limits), {}, {}});
      return name;
    };
    Node high;
    high.name = clip->name;
    high.op = "Min";
    if (limited) high.inputs = {inside, bound("|bound_high", bounds.high)};
    high.outputs = {value};
    Node low;
    low.name = clip->name.empty() || !limited ? clip->name : clip->name + "|low";
    low.inputs = {clip->inputs[0]};
    low.outputs = {inside};
    low.op = bounds.low == 0 && pair.shifts.empty() ? "Relu" : "Max";
    if (low.op == "Max") low.inputs.push_back(bound("|bound_low", bounds.low));
    *clip = std::move(low);
    if (limited) graph_.nodes.insert(clip + 1, std::move(high));
  }

  /// What the next layer puts around shifted values must be what a zero has become: its lower bound. So something lower
  /// is put around what the activation reads.
  void pad_before(const Pair& pair) {
    const std::string& value = pair.values.front();
    const std::string padded = graph_.fresh_name(value + "|padded");
    const std::string pads = graph_.fresh_name(value + "|pads"), low = graph_.fresh_name(value + "|pad");
    graph_.initializers.push_back({pads, Tensor::of<int64_t>({std::ssize(pair.pads)}, pair.pads), {}, {}});
    graph_.initializers.push_back({low, Tensor::scalar(-1e30F), {}, {}});
    const auto reader = std::ranges::find_if(
        graph_.nodes, [&](const Node& node) { return !node.inputs.empty() && node.inputs[0] == value; });
    reader->inputs[0] = padded;
    Node pad;
    pad.op = "Pad";
    pad.name = padded;
    pad.inputs = {value, pads, low};
    pad.outputs = {padded};
    graph_.nodes.insert(reader, std::move(pad));
    const Layer& next = *weights_[pair.next.front()].layer;
    const auto conv = std::ranges::find_if(graph_.nodes, [&](const Node& node) { return node_id(node) == next.node; });
    conv->erase("pads");
  }

  const AlgorithmInput& input_;
  QuantizedModel& quantized_;
  Graph& graph_;
  Uses uses_;
  std::vector<Weight> weights_;  ///< by layer
  std::map<std::string, size_t> by_node_;
  std::vector<Pair> pairs_;
  std::vector<Seen> seen_;  ///< by pair
};

}  // namespace

void register_cle(Registry<Algorithm>& algorithms) {
  algorithms.add(
      "cle", {.summary = "equalizes the channels of neighbouring layers; the float function stays as it is",
              .stage = Stage::BeforeCalibration,
              .options = {{.name = "iterations",
                           .value = 40,
                           .min = 1,
                           .max = 1000,
                           .help = "rounds over all pairs, at most",
                           .whole = true},
                          {.name = "activations", .help = "no activation gets a wider range than before", .flag = true},
                          {.name = "relu",
                           .help = "a Clip from 0 whose upper bound no data reach becomes a Relu",
                           .flag = true},
                          {.name = "absorb",
                           .help = "what keeps a channel of a quantized activation away from 0 goes into the next "
                                   "layer's bias",
                           .flag = true}},
              .run = [](const AlgorithmInput& input) { Equalizer(input).run(); }});
}

}  // namespace kaon
