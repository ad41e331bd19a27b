#include <cmath>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "graph/passes/passes.h"

namespace kaon::passes {

namespace {

/// y = (x - mean) · factor + beta, per channel.
struct Affine {
  std::vector<double> factor;
  std::vector<double> mean;
  std::vector<float> beta;
};

/// A weight as [outer, channels, inner], with `groups` runs of channels where outer rows belong to one group each.
struct WeightLayout {
  int64_t outer = 1;
  int64_t channels_per_row = 1;
  int64_t inner = 1;
  int64_t groups = 1;

  int64_t channels() const { return channels_per_row * groups; }
  /// The output channel that an element belongs to.
  int64_t channel(int64_t row, int64_t column) const { return row / (outer / groups) * channels_per_row + column; }
};

std::optional<WeightLayout> layout_of(const Node& node, const Shape& shape) {
  const auto inner_from = [&](size_t axis) { return element_count(std::span<const int64_t>(shape).subspan(axis)); };
  if (node.op == "Conv" && shape.size() >= 3) return WeightLayout{1, shape[0], inner_from(1), 1};
  if (node.op == "ConvTranspose" && shape.size() >= 3) {
    const int64_t groups = node.get_int("group", 1);
    if (groups < 1 || shape[0] == 0 || shape[0] % groups != 0) return std::nullopt;
    return WeightLayout{shape[0], shape[1], inner_from(2), groups};
  }
  if (node.op == "Gemm" && shape.size() == 2) {
    if (node.get_int("transB", 0) != 0) return WeightLayout{1, shape[0], shape[1], 1};
    return WeightLayout{shape[0], shape[1], 1, 1};
  }
  return std::nullopt;
}

class Folder {
 public:
  explicit Folder(Graph& graph) : graph_(graph), uses_(graph), names_(graph) {
    for (size_t i = 0; i < graph.initializers.size(); ++i) initializers_.emplace(graph.initializers[i].name, i);
  }

  int64_t fold() {
    for (int64_t i = 0; i < std::ssize(graph_.nodes); ++i) {
      if (fold_into_producer(i)) folded_.insert(i);
    }
    std::vector<Node> kept;
    for (int64_t i = 0; i < std::ssize(graph_.nodes); ++i) {
      if (!folded_.contains(i)) kept.push_back(std::move(graph_.nodes[static_cast<size_t>(i)]));
    }
    graph_.nodes = std::move(kept);
    return std::ssize(folded_);
  }

 private:
  bool fold_into_producer(int64_t index) {
    const Node& norm = graph_.nodes[static_cast<size_t>(index)];
    const std::optional<Affine> affine = affine_of(norm);
    if (!affine) return false;
    const std::string input = norm.inputs[0];
    if (uses_.is_output(input) || uses_.consumers(input).size() != 1) return false;
    const int64_t producer = owner_of(input);
    if (producer < 0) return false;
    Node& layer = graph_.nodes[static_cast<size_t>(producer)];
    if (!layer.domain.empty() || layer.inputs.size() < 2) return false;
    const Tensor* weight = constant(layer.inputs[1]);
    if (weight == nullptr || weight->type() != DType::Float32) return false;
    const std::optional<WeightLayout> layout = layout_of(layer, weight->shape());
    if (!layout || layout->channels() != std::ssize(affine->factor)) return false;
    const std::optional<std::vector<double>> bias = bias_of(layer, layout->channels());
    if (!bias) return false;

    Tensor new_weight = scaled(*weight, *layout, affine->factor);
    std::vector<float> new_bias(affine->factor.size());
    for (size_t c = 0; c < new_bias.size(); ++c) {
      new_bias[c] = static_cast<float>(((*bias)[c] - affine->mean[c]) * affine->factor[c] + affine->beta[c]);
    }
    replace_input(layer, 1, std::move(new_weight), layer.inputs[1]);
    replace_input(layer, 2, Tensor::of({layout->channels()}, new_bias), bias_name(layer.inputs[1]));
    layer.erase("beta");  // Gemm's; it is in the new bias
    layer.outputs[0] = norm.outputs[0];
    moved_[norm.outputs[0]] = producer;
    return true;
  }

  /// The node that makes `value` now: a fold moves the norm's output to its layer.
  int64_t owner_of(const std::string& value) const {
    const auto it = moved_.find(value);
    return it == moved_.end() ? uses_.producer(value) : it->second;
  }

  const Tensor* constant(const std::string& value) const {
    const auto it = initializers_.find(value);
    return it == initializers_.end() ? nullptr : &graph_.initializers[it->second].tensor;
  }

  std::optional<std::vector<float>> floats(const std::string& value) const {
    const Tensor* tensor = constant(value);
    if (tensor == nullptr || tensor->type() != DType::Float32 || tensor->rank() != 1) return std::nullopt;
    return tensor->to_float();
  }

  std::optional<Affine> affine_of(const Node& norm) const {
    if (norm.op != "BatchNormalization" || !norm.domain.empty() || norm.inputs.size() != 5) return std::nullopt;
    if (norm.get_int("training_mode", 0) != 0 || norm.get_int("spatial", 1) == 0) return std::nullopt;
    for (size_t i = 1; i < norm.outputs.size(); ++i) {
      if (!norm.outputs[i].empty()) return std::nullopt;
    }
    const auto gamma = floats(norm.inputs[1]), beta = floats(norm.inputs[2]);
    const auto mean = floats(norm.inputs[3]), variance = floats(norm.inputs[4]);
    if (!gamma || !beta || !mean || !variance) return std::nullopt;
    const size_t channels = gamma->size();
    if (beta->size() != channels || mean->size() != channels || variance->size() != channels) return std::nullopt;
    const double epsilon = norm.get_float("epsilon", 1e-5F);
    Affine affine{std::vector<double>(channels), {mean->begin(), mean->end()}, *beta};
    for (size_t c = 0; c < channels; ++c) {
      affine.factor[c] = (*gamma)[c] / std::sqrt((*variance)[c] + epsilon);
      if (!std::isfinite(affine.factor[c])) return std::nullopt;
    }
    return affine;
  }

  /// The layer's bias per channel, zeros where it has none; nothing where it is not constant or not per channel.
  std::optional<std::vector<double>> bias_of(const Node& layer, int64_t channels) const {
    std::vector<double> bias(static_cast<size_t>(channels), 0.0);
    if (layer.inputs.size() < 3 || layer.inputs[2].empty()) return bias;
    const Tensor* tensor = constant(layer.inputs[2]);
    if (tensor == nullptr || tensor->type() != DType::Float32) return std::nullopt;
    const bool per_channel = tensor->size() == channels && tensor->rank() > 0 && tensor->shape().back() == channels;
    if (!per_channel && !(layer.op == "Gemm" && tensor->size() == 1)) return std::nullopt;
    const double scale = layer.op == "Gemm" ? layer.get_float("beta", 1.0F) : 1.0;
    const std::span<const float> values = tensor->as<float>();
    for (size_t c = 0; c < bias.size(); ++c) bias[c] = scale * values[values.size() == 1 ? 0 : c];
    return bias;
  }

  static Tensor scaled(const Tensor& weight, const WeightLayout& layout, const std::vector<double>& factor) {
    std::vector<float> values = weight.to_float();
    size_t at = 0;
    for (int64_t row = 0; row < layout.outer; ++row) {
      for (int64_t column = 0; column < layout.channels_per_row; ++column) {
        const double by = factor[static_cast<size_t>(layout.channel(row, column))];
        for (int64_t i = 0; i < layout.inner; ++i, ++at) values[at] = static_cast<float>(values[at] * by);
      }
    }
    return Tensor::of(weight.shape(), values);
  }

  static std::string bias_name(const std::string& weight) {
    constexpr std::string_view kSuffix = ".weight";
    return weight.ends_with(kSuffix) ? weight.substr(0, weight.size() - kSuffix.size()) + ".bias" : weight + "_bias";
  }

  /// Gives `layer` another constant: under the old name where nobody else reads it, else under a new one.
  void replace_input(Node& layer, size_t at, Tensor tensor, const std::string& wanted) {
    if (layer.inputs.size() <= at) layer.inputs.resize(at + 1);
    std::string& name = layer.inputs[at];
    const bool alone =
        !name.empty() && (created_.contains(name) || (uses_.consumers(name).size() == 1 && !uses_.is_output(name)));
    // An input that defaults to this initializer would still announce the old shape.
    if (alone && constant(name)->shape() == tensor.shape()) {
      graph_.initializers[initializers_.at(name)].tensor = std::move(tensor);
      return;
    }
    name = names_.make(wanted);
    created_.insert(name);
    initializers_.emplace(name, graph_.initializers.size());
    graph_.initializers.push_back({name, std::move(tensor), {}, {}});
  }

  Graph& graph_;
  Uses uses_;
  FreshNames names_;
  std::unordered_map<std::string, size_t> initializers_;
  std::unordered_map<std::string, int64_t> moved_;
  std::unordered_set<std::string> created_;
  std::unordered_set<int64_t> folded_;
};

}  // namespace

int64_t fold_batch_norm(Model& model, const PassContext&) {
  return in_every_graph(model.graph, [](Graph& graph) { return Folder(graph).fold(); });
}

}  // namespace kaon::passes
