#include "quant/scale_groups.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "engine/engine.h"
#include "engine/op_facts.h"
#include "engine/scales_with.h"
#include "graph/extract.h"
#include "graph/node_id.h"
#include "graph/stored.h"
#include "quant/placement.h"

namespace kaon {
namespace {

/// A source with what is made of it, before it is known which channel goes where.
struct Draft {
  ScaleGroup group;
  std::string value;                 ///< of the source
  std::set<std::string> made;        ///< on the way, the source's value among them
  std::set<std::string> beside;      ///< values that nodes on the way read besides; no constants
  std::vector<const Layer*> layers;  ///< that read one of `made`
};

class Finder {
 public:
  explicit Finder(const QuantizedModel& quantized)
      : quantized_(quantized), graph_(quantized.model.graph), uses_(graph_) {
    for (const Layer& layer : quantized.layers) {
      by_node_[layer.node] = &layer;
      by_last_node_[layer.last_node()] = &layer;
    }
  }

  std::vector<Draft> drafts() const {
    std::vector<Draft> found;
    for (const Node& node : graph_.nodes) {
      std::optional<Draft> draft = source_at(node);
      if (!draft) continue;
      if (follow(draft->value, *draft) && !draft->layers.empty()) {
        found.push_back(std::move(*draft));
        continue;
      }
      // A part of what one product makes: fused queries, keys and values, or gate and up.
      const Node* split = only_split(draft->value);
      if (split == nullptr) continue;
      for (const std::string& part : split->outputs) {
        Draft piece = *source_at(node);
        piece.made.insert(piece.value);
        note_beside(*split, piece.value, piece);
        if (follow(part, piece) && !piece.layers.empty()) found.push_back(std::move(piece));
      }
    }
    return found;
  }

 private:
  const Node& node_at(int64_t index) const { return graph_.nodes[static_cast<size_t>(index)]; }

  const Initializer* vector_at(const Node& node, size_t input) const {
    if (input >= node.inputs.size()) return nullptr;
    const Initializer* constant = graph_.find_initializer(node.inputs[input]);
    if (constant == nullptr || constant->tensor.type() != DType::Float32) return nullptr;
    const Shape& shape = constant->tensor.shape();
    const bool along_last = !shape.empty() && shape.back() > 1 && shape.back() == constant->tensor.size();
    return along_last && !uses_.is_output(constant->name) ? constant : nullptr;
  }

  std::optional<Draft> source_at(const Node& node) const {
    Draft draft;
    const auto layer = by_last_node_.find(node_id(node));
    if (layer != by_last_node_.end()) {
      if (!is_own_product(graph_, uses_, *layer->second)) return std::nullopt;
      draft.group.layer = layer->second;
      draft.group.name = layer->second->name;
      draft.group.channels = layer->second->weight_shape[static_cast<size_t>(channel_axis(graph_, *layer->second))];
      draft.value = layer->second->output;
      return draft;
    }
    if (node.inputs.empty() || node.outputs.empty()) return std::nullopt;
    for (const std::vector<size_t>& set : scales_with(node)) {
      std::vector<ScaleGroup::Vector> vectors;
      int64_t channels = 0;
      const bool all = std::ranges::all_of(set, [&](size_t input) {
        const Initializer* vector = vector_at(node, input);
        if (vector == nullptr || (channels > 0 && channels != vector->tensor.size())) return false;
        channels = vector->tensor.size();
        vectors.push_back({vector->name, {node_id(node), static_cast<int64_t>(input)}});
        return true;
      });
      if (!all || vectors.empty()) continue;
      draft.group.vectors = std::move(vectors);
      draft.group.channels = channels;
      draft.group.name = plain_name(node);
      draft.value = node.outputs[0];
      add_shift(draft);
      return draft;
    }
    return std::nullopt;
  }

  /// The Add of a constant vector that alone reads the source belongs to it.
  void add_shift(Draft& draft) const {
    const std::vector<int64_t>& readers = uses_.consumers(draft.value);
    if (readers.size() != 1 || uses_.is_output(draft.value)) return;
    const Node& reader = node_at(readers[0]);
    if (reader.op != "Add" || !reader.domain.empty() || by_last_node_.contains(node_id(reader))) return;
    const size_t other = reader.inputs[0] == draft.value ? 1 : 0;
    const Initializer* shift = vector_at(reader, other);
    if (shift == nullptr || shift->tensor.size() != draft.group.channels) return;
    draft.group.vectors.push_back({shift->name, {node_id(reader), static_cast<int64_t>(other)}});
    draft.value = reader.outputs[0];
  }

  const Node* only_split(const std::string& value) const {
    const std::vector<int64_t>& readers = uses_.consumers(value);
    if (readers.size() != 1 || uses_.is_output(value)) return nullptr;
    const Node& reader = node_at(readers[0]);
    return reader.op == "Split" && reader.domain.empty() && reader.inputs[0] == value ? &reader : nullptr;
  }

  void note_beside(const Node& node, const std::string& value, Draft& draft) const {
    for (const std::string& input : node.inputs) {
      if (input.empty() || input == value || graph_.find_initializer(input) != nullptr) continue;
      draft.beside.insert(input);
    }
  }

  /// Whether all that reads `value` is a product, or passes factors on to products.
  bool follow(const std::string& value, Draft& draft) const {
    if (uses_.is_output(value) || uses_.consumers(value).empty()) return false;
    draft.made.insert(value);
    for (const int64_t index : uses_.consumers(value)) {
      const Node& reader = node_at(index);
      if (std::ranges::count(reader.inputs, value) != 1) return false;
      const auto layer = by_node_.find(node_id(reader));
      if (layer != by_node_.end()) {
        if (layer->second->input != value || !is_own_product(graph_, uses_, *layer->second)) return false;
        draft.layers.push_back(layer->second);
        continue;
      }
      const auto input = static_cast<size_t>(std::ranges::find(reader.inputs, value) - reader.inputs.begin());
      const OpFacts facts = facts_of(reader, graph_);
      if (!subgraphs(reader).empty() || !scales_alone(reader, graph_, input)) return false;
      note_beside(reader, value, draft);
      for (size_t i = 0; i < reader.outputs.size(); ++i) {
        const std::string& made = reader.outputs[i];
        const bool unread = made.empty() || (uses_.consumers(made).empty() && !uses_.is_output(made));
        if (unread && i > 0) continue;
        if (i > 0 && facts.homogeneous == Homogeneous::No) return false;
        if (!follow(made, draft)) return false;
      }
    }
    return true;
  }

  const QuantizedModel& quantized_;
  const Graph& graph_;
  Uses uses_;
  std::map<std::string, const Layer*> by_node_;
  std::map<std::string, const Layer*> by_last_node_;
};

/// Finds which channel of the source each place of a value's last axis holds.
class Probe {
 public:
  Probe(const Model& model, const TensorMap& sample, const Draft& draft) : draft_(draft), sample_(sample) {
    std::vector<std::string> inputs{draft.value};
    for (const std::string& value : draft.beside) {
      if (!draft.made.contains(value)) inputs.push_back(value);
    }
    for (const std::string& value : draft.made) {
      if (value != draft.value) outputs_.push_back(value);
    }
    if (outputs_.empty()) return;
    // What only leads to shapes of things outside is not needed.
    engine_ = std::make_unique<Engine>(extract(model, inputs, outputs_));
    for (const std::string& input : inputs) given_[input] = sample.at(input);
  }

  /// Nothing where a value that a product reads mixes channels, or cannot be told.
  std::optional<std::vector<ScaleGroup::Carried>> run() {
    const int64_t channels = draft_.group.channels;
    const Shape& shape = sample_.at(draft_.value).shape();
    if (shape.empty() || shape.back() != channels) return std::nullopt;
    std::vector<int64_t> same(static_cast<size_t>(channels));
    for (size_t c = 0; c < same.size(); ++c) same[c] = static_cast<int64_t>(c);
    std::vector<ScaleGroup::Carried> carried{{draft_.value, same}};
    if (outputs_.empty()) return carried;
    const std::vector<Tensor> before = scaled_by(0, 0);
    std::vector<std::optional<std::vector<int64_t>>> found(outputs_.size());
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (before[i].rank() > 0) found[i].emplace(static_cast<size_t>(before[i].shape().back()));
    }
    // Powers of two tell a digit of the channel's number exactly.
    for (int shift = 0; (channels - 1) >> shift > 0; shift += kDigit) {
      const std::vector<Tensor> after = scaled_by(shift, kDigit);
      for (size_t i = 0; i < outputs_.size(); ++i) {
        if (found[i] && !add_digits(before[i], after[i], shift, *found[i])) found[i].reset();
      }
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (found[i]) carried.push_back({outputs_[i], std::move(*found[i])});
    }
    return carried;
  }

 private:
  static constexpr int kDigit = 4;

  /// Runs with every channel times two to the power of a digit of its number.
  std::vector<Tensor> scaled_by(int shift, int bits) {
    const Tensor& real = sample_.at(draft_.value);
    std::vector<float> values(static_cast<size_t>(real.size()));
    const auto channels = static_cast<size_t>(draft_.group.channels);
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t digit = bits == 0 ? 0 : (i % channels >> shift) & ((size_t{1} << bits) - 1);
      // Positive, so that a Relu passes it, and another in every row.
      values[i] = std::ldexp(1 + static_cast<float>(i * 7919 % 1009) / 1009, static_cast<int>(digit));
    }
    given_[draft_.value] = Tensor::of(real.shape(), values);
    return engine_->run(given_);
  }

  static bool add_digits(const Tensor& before, const Tensor& after, int shift, std::vector<int64_t>& numbers) {
    const std::vector<float> x = before.to_float();
    const std::vector<float> y = after.to_float();
    std::vector<int64_t> digits(numbers.size(), -1);
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i] == 0 && y[i] == 0) continue;
      const double power = std::log2(static_cast<double>(y[i]) / x[i]);
      const double digit = std::round(power);
      int64_t& known = digits[i % digits.size()];
      if (!(std::fabs(power - digit) < 1e-3) || (known >= 0 && known != static_cast<int64_t>(digit))) return false;
      known = static_cast<int64_t>(digit);
    }
    if (std::ranges::any_of(digits, [](int64_t digit) { return digit < 0 || digit >= 1 << kDigit; })) return false;
    for (size_t k = 0; k < numbers.size(); ++k) numbers[k] |= digits[k] << shift;
    return true;
  }

  const Draft& draft_;
  const TensorMap& sample_;
  std::vector<std::string> outputs_;
  std::unique_ptr<Engine> engine_;
  TensorMap given_;
};

/// What the model makes of one sample, as far as the probes need it.
TensorMap values_of(const Model& model, const std::vector<Draft>& drafts, const Dataset& data) {
  std::set<std::string> wanted;
  for (const Draft& draft : drafts) {
    wanted.insert(draft.value);
    wanted.insert(draft.beside.begin(), draft.beside.end());
  }
  const int64_t count = std::min(batch_for(model.graph, 1, data), data.size());
  const TensorMap inputs = data.read(0, count).inputs;
  TensorMap values;
  Hooks hooks;
  for (const std::string& value : wanted) {
    const auto input = inputs.find(value);
    if (input != inputs.end()) {
      values[value] = input->second;
    } else {
      hooks.add(value, [&values](const std::string& name, const Tensor& tensor) {
        values[name] = Tensor::copy_bytes(tensor.type(), tensor.shape(), tensor.bytes());
        return std::nullopt;
      });
    }
  }
  Engine(model).run(inputs, hooks);
  return values;
}

}  // namespace

bool is_own_product(const Graph& graph, const Uses& uses, const Layer& layer) {
  const auto own = [&](const std::string& value) {
    return uses.consumers(value).size() == 1 && !uses.is_output(value);
  };
  if ((layer.op != "Gemm" && layer.op != "MatMul") || layer.weight_input != 1 || layer.weight_shape.size() != 2) {
    return false;
  }
  if (layer.op == "Gemm" && node_by_id(graph, layer.node).get_int("transA", 0) != 0) return false;
  const Initializer* weight = find_stored(graph, layer.weight);
  if (weight == nullptr || !is_float(weight->tensor) || !own(layer.weight)) return false;
  if (layer.bias.empty()) return true;
  const Initializer* bias = graph.find_initializer(layer.bias);
  return bias != nullptr && bias->tensor.type() == DType::Float32 && own(layer.bias) &&
         bias->tensor.size() == layer.weight_shape[static_cast<size_t>(channel_axis(graph, layer))];
}

std::vector<ScaleGroup> find_scale_groups(const QuantizedModel& quantized, const Dataset& data) {
  std::vector<Draft> drafts = Finder(quantized).drafts();
  std::vector<ScaleGroup> groups;
  if (drafts.empty()) return groups;
  const TensorMap sample = values_of(quantized.model, drafts, data);
  std::set<const Layer*> taken;
  for (Draft& draft : drafts) {
    if (std::ranges::any_of(draft.layers, [&](const Layer* layer) { return taken.contains(layer); })) continue;
    auto carried = Probe(quantized.model, sample, draft).run();
    if (!carried) continue;
    ScaleGroup group = std::move(draft.group);
    group.carried = std::move(*carried);
    for (const Layer* layer : draft.layers) {
      const auto read = std::ranges::find_if(group.carried, [&](const auto& one) { return one.value == layer->input; });
      const auto inputs = layer->weight_shape[static_cast<size_t>(input_axis(quantized.model.graph, *layer))];
      if (read == group.carried.end() || std::ssize(read->channel) != inputs) break;
      group.products.push_back({layer, static_cast<size_t>(read - group.carried.begin())});
    }
    if (group.products.size() != draft.layers.size()) continue;
    taken.insert(draft.layers.begin(), draft.layers.end());
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace kaon
