#include "quant/paired_statistics.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

#include "engine/engine.h"
#include "graph/extract.h"
#include "quant/simulate.h"
#include "quant/so_far.h"

namespace kaon {
namespace {

std::vector<std::string> read_by(const Node& node) {
  std::vector<std::string> values = node.inputs;
  for (const auto& subgraph : subgraphs(node))
    std::ranges::copy(captured_values(*subgraph), std::back_inserter(values));
  std::erase(values, "");
  return values;
}

/// What nodes from `position` on read of values that depend on the graph's inputs and are made before.
std::vector<std::string> alive_at(const Graph& graph, int64_t position) {
  std::set<std::string> made, alive;
  for (const ValueInfo& input : graph.inputs) made.insert(input.name);
  const auto is_made = [&](const std::string& value) { return made.contains(value); };
  for (int64_t i = 0; i < std::ssize(graph.nodes); ++i) {
    const Node& node = graph.nodes[static_cast<size_t>(i)];
    const std::vector<std::string> values = read_by(node);
    if (i >= position) {
      std::ranges::copy_if(values, std::inserter(alive, alive.end()), is_made);
    } else if (std::ranges::any_of(values, is_made)) {
      made.insert(node.outputs.begin(), node.outputs.end());
    }
  }
  return {alive.begin(), alive.end()};
}

/// The part of a model that makes some values of others.
class Part {
 public:
  Part(const Model& model, const TensorMap& given, const std::vector<std::string>& wanted) : wanted_(wanted) {
    for (const std::string& value : wanted) {
      if (!given.contains(value) && std::ranges::find(made_, value) == made_.end()) made_.push_back(value);
    }
    if (made_.empty()) return;
    Model part = extract(model, needed(model.graph, given), made_);
    for (ValueInfo& input : part.graph.inputs) input.type = given.at(input.name).type();
    engine_.emplace(std::move(part));
  }

  TensorMap of(const TensorMap& given) {
    TensorMap values;
    for (const std::string& value : wanted_) {
      if (const auto known = given.find(value); known != given.end()) values.insert(*known);
    }
    if (!engine_) return values;
    TensorMap inputs;
    for (const ValueInfo& input : engine_->model().graph.inputs) inputs[input.name] = given.at(input.name);
    std::vector<Tensor> outputs = engine_->run(inputs);
    for (size_t i = 0; i < made_.size(); ++i) values[made_[i]] = std::move(outputs[i]);
    return values;
  }

 private:
  /// Which of the given values made_ depends on.
  std::vector<std::string> needed(const Graph& graph, const TensorMap& given) const {
    const Uses uses(graph);
    std::set<std::string> seen, found;
    std::vector<std::string> open = made_;
    while (!open.empty()) {
      const std::string value = std::move(open.back());
      open.pop_back();
      if (!seen.insert(value).second) continue;
      if (given.contains(value)) {
        found.insert(value);
      } else if (const int64_t producer = uses.producer(value); producer >= 0) {
        std::ranges::copy(read_by(graph.nodes[static_cast<size_t>(producer)]), std::back_inserter(open));
      }
    }
    return {found.begin(), found.end()};
  }

  std::vector<std::string> wanted_;
  std::vector<std::string> made_;
  std::optional<Engine> engine_;
};

int64_t bytes_of(const TensorMap& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0},
                         [](int64_t sum, const auto& value) { return sum + value.second.byte_size(); });
}

/// The first node that multiplies with one of `weights`.
int64_t first_of(const Graph& graph, std::span<const GridWeight> weights) {
  const Uses uses(graph);
  int64_t first = std::ssize(graph.nodes);
  for (const GridWeight& weight : weights) {
    for (const Layer* layer : weight.layers) {
      // Where its output is quantized, the layer makes another value.
      const int64_t raw = uses.producer(raw_name(layer->output));
      first = std::min(first, raw >= 0 ? raw : uses.producer(layer->output));
    }
  }
  return first;
}

struct Pair {
  std::string exact;    ///< value in the float model
  std::string rounded;  ///< and in the quantized one
  InputSums sums;
};

}  // namespace

NetworkWalk::NetworkWalk(const Dataset& data, int64_t batch, int64_t most_bytes)
    : data_(data), batch_(batch), most_bytes_(most_bytes) {}

TensorMap NetworkWalk::kept(int64_t first) const {
  if (kept_.empty()) return data_.read(first, std::min(batch_, data_.size() - first)).inputs;
  return kept_[static_cast<size_t>(first / batch_)];
}

void NetworkWalk::go_to(const Model& model, int64_t position) {
  const std::vector<std::string> alive = alive_at(model.graph, position);
  Part part(model, kept(0), alive);
  std::vector<TensorMap> made;
  for (int64_t first = 0; first < data_.size(); first += batch_) {
    made.push_back(part.of(kept(first)));
    const int64_t batches = (data_.size() + batch_ - 1) / batch_;
    if (first == 0 && bytes_of(made[0]) * batches > most_bytes_) return;
    // What it is made of is not needed any more.
    if (!kept_.empty()) kept_[static_cast<size_t>(first / batch_)] = made.back();
  }
  kept_ = std::move(made);
}

PairedStatistics::PairedStatistics(const AlgorithmInput& input)
    : input_(input),
      batch_(batch_for(input.quantized.model.graph, input.settings.batch, *input.data)),
      exact_(*input.data, batch_),
      rounded_(exact_) {}

std::vector<std::shared_ptr<const InputStatistics>> PairedStatistics::of(std::span<const GridWeight> weights,
                                                                         size_t count) {
  QuantizedModel quantized = input_.quantized;
  for (const GridWeight& weight : weights) {
    quantized.quantizers[static_cast<size_t>(weight.quantizer - input_.quantized.quantizers.data())].enabled = false;
    quantized.rounded.erase(weight.quantizer->tensor);
  }
  const Model simulated = simulate_so_far(quantized);
  exact_.go_to(quantized.model, first_of(quantized.model.graph, weights));
  rounded_.go_to(simulated, first_of(simulated.graph, weights));
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
  const Dataset& data = *input_.data;
  input_.settings.progress->begin("collecting statistics", data.size());
  Part exact(quantized.model, exact_.kept(0), wanted[0]);
  Part rounded(simulated, rounded_.kept(0), wanted[1]);
  for (int64_t first = 0; first < data.size(); first += batch_) {
    const TensorMap y = exact.of(exact_.kept(first));
    const TensorMap x = rounded.of(rounded_.kept(first));
    for (Pair& pair : pairs) pair.sums.add(x.at(pair.rounded), first, &y.at(pair.exact));
    input_.settings.progress->at(std::min(first + batch_, data.size()));
  }
  input_.settings.progress->end();
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
