#include "api/compare.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "api/load_model.h"
#include "api/run_inputs.h"
#include "base/error.h"
#include "data/dataset.h"
#include "engine/engine.h"
#include "graph/layer.h"
#include "numerics/error_metrics.h"

namespace kaon {

namespace {

/// What the nodes of the graph make, in order.
std::vector<std::string> made_values(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes) {
    std::ranges::copy_if(node.outputs, std::back_inserter(names),
                         [](const std::string& name) { return !name.empty(); });
  }
  return names;
}

bool is_number(DType type) { return type != DType::String && type != DType::Complex64 && type != DType::Complex128; }

/// NaN and Inf stand in the same places.
bool same_specials(const std::vector<float>& x, const std::vector<float>& reference) {
  return std::ranges::equal(x, reference, [](float a, float b) {
    return (std::isfinite(a) && std::isfinite(b)) || a == b || (std::isnan(a) && std::isnan(b));
  });
}

/// How far a value of B is from that of A, over all runs.
class Difference {
 public:
  /// Both of one shape, and numbers.
  void update(const Tensor& value, const Tensor& reference) {
    const std::vector<float> x = value.to_float(), y = reference.to_float();
    metrics_.update(x, y);
    equal_ = equal_ && value.type() == reference.type() && std::ranges::equal(value.bytes(), reference.bytes());
    same_specials_ = same_specials_ && same_specials(x, y);
  }

  ValueDifference row(const std::string& name) const {
    const bool differs = !equal_ && ((metrics_.count > 0 && metrics_.sqnr_db() < kNoiseDb) || !same_specials_);
    return {name, metrics_.sqnr_db(), metrics_.cosine(), metrics_.max_abs(), differs, {}, {}};
  }

 private:
  ErrorMetrics metrics_;
  bool equal_ = true;
  bool same_specials_ = true;
};

/// What makes each value of a graph, as a user knows it. What has no name of its own and reads one value goes by the
/// name of the layer behind which it stands.
class Makers {
 public:
  explicit Makers(const Graph& graph) {
    std::map<std::string, const Layer*> layer_of;  // by the value that a layer makes, and what follows it alone
    const std::vector<Layer> all = layers(graph);
    for (const Layer& layer : all) {
      if (!layer.output.empty()) layer_of[layer.output] = &layer;
    }
    for (const Node& node : graph.nodes) {
      const auto made = [&](const std::string& output) { return layer_of.contains(output); };
      const Layer* layer =
          node.name.empty() && std::ranges::none_of(node.outputs, made) ? read(graph, node, layer_of) : nullptr;
      for (const std::string& output : node.outputs) {
        makers_[output] = {layer != nullptr ? layer->name : plain_name(node), node.op};
        if (layer != nullptr) layer_of[output] = layer;
      }
    }
    for (const Layer& layer : all) {
      if (layer.output.empty()) continue;
      makers_[layer.node].first = layer.name;
      makers_[layer.output] = {layer.name, layer.op};
    }
  }

  void name(ValueDifference& row) const {
    const auto found = makers_.find(row.name);
    if (found != makers_.end()) std::tie(row.layer, row.op) = found->second;
  }

 private:
  /// The layer whose value is the only one that `node` reads beside constants.
  static const Layer* read(const Graph& graph, const Node& node, const std::map<std::string, const Layer*>& layer_of) {
    const Layer* layer = nullptr;
    for (const std::string& input : node.inputs) {
      const auto found = layer_of.find(input);
      if (found == layer_of.end()) {
        if (!input.empty() && graph.find_initializer(input) == nullptr) return nullptr;
        continue;
      }
      if (layer != nullptr && layer != found->second) return nullptr;
      layer = found->second;
    }
    return layer;
  }

  std::map<std::string, std::pair<std::string, std::string>> makers_;
};

/// NaN and Inf in other places are worse than any noise.
double level(const ValueDifference& row) {
  return row.differs && !std::isfinite(row.sqnr_db) ? -INFINITY : row.sqnr_db;
}

/// `rows`: the values that are known, in the order of the graph.
std::optional<Parting> find_parting(const Graph& graph, const std::vector<ValueDifference>& rows) {
  std::map<std::string, const ValueDifference*> known;
  for (const ValueDifference& row : rows) known[row.name] = &row;
  std::map<std::string, double> levels;  // of values that are not known: of the worst they come from
  for (const Node& node : graph.nodes) {
    double given = INFINITY;
    for (const std::string& input : node.inputs) {
      if (const auto found = levels.find(input); found != levels.end()) given = std::min(given, found->second);
    }
    for (const std::string& output : node.outputs) {
      const auto found = known.find(output);
      levels[output] = found == known.end() ? given : level(*found->second);
      if (found != known.end() && std::min(given, kFineDb) - levels[output] >= kCliffDb) {
        return Parting{*found->second, given};
      }
    }
  }
  return std::nullopt;
}

/// A model at work; errors name its file.
class Side {
 public:
  template <typename Action>
  std::invoke_result_t<Action> named(const Action& action) const {
    try {
      return action();
    } catch (const Error& error) {
      throw Error(error.code(), error.what(), path_.string());
    }
  }

  explicit Side(std::filesystem::path path) : path_(std::move(path)), engine_(compiled(load_model(path_))) {}

  const Graph& graph() const { return engine_.model().graph; }

  std::vector<Tensor> run(const TensorMap& inputs, const Hooks& hooks) {
    return named([&] { return engine_.run(inputs, hooks); });
  }

 private:
  Engine compiled(Model model) const {
    return named([&] { return Engine(std::move(model)); });
  }

  std::filesystem::path path_;
  Engine engine_;
};

/// For each output of `a`, which of `b`: that of its name, or of its place where the names differ.
std::vector<size_t> pair_outputs(const std::vector<ValueInfo>& a, const std::vector<ValueInfo>& b,
                                 const CompareOptions& options) {
  if (a.size() != b.size()) {
    fail(ErrorCode::InvalidInput, options.b.string(), "has {} outputs, {} has {}", b.size(), options.a.string(),
         a.size());
  }
  std::vector<size_t> pairs;
  for (const ValueInfo& info : a) {
    const auto it = std::ranges::find(b, info.name, &ValueInfo::name);
    if (it != b.end()) pairs.push_back(static_cast<size_t>(it - b.begin()));
  }
  if (pairs.size() == a.size()) return pairs;
  pairs.clear();
  for (size_t i = 0; i < a.size(); ++i) pairs.push_back(i);
  return pairs;
}

/// Runs both models batch by batch and keeps the differences.
class Comparison {
 public:
  explicit Comparison(const CompareOptions& options) : a_(options.a), b_(options.b) {
    const std::vector<std::string> names_b = made_values(b_.graph());
    const std::set<std::string> known_b(names_b.begin(), names_b.end());
    common_ = made_values(a_.graph());
    std::erase_if(common_, [&](const std::string& name) { return !known_b.contains(name); });
    pairs_ = pair_outputs(a_.graph().outputs, b_.graph().outputs, options);
    outputs_.resize(pairs_.size());
  }

  const Side& a() const { return a_; }
  const Side& b() const { return b_; }

  /// What each side made; `inputs` as it takes them.
  std::pair<std::vector<Tensor>, std::vector<Tensor>> update(const TensorMap& inputs_a, const TensorMap& inputs_b) {
    TensorMap values;
    Hooks hooks_a;
    for (const std::string& name : common_) {
      hooks_a.add(name, [&](const std::string& value, const Tensor& tensor) -> std::optional<Tensor> {
        if (is_number(tensor.type())) {
          values.insert_or_assign(value, Tensor::copy_bytes(tensor.type(), tensor.shape(), tensor.bytes()));
        }
        return std::nullopt;
      });
    }
    const std::vector<Tensor> outputs_a = a_.run(inputs_a, hooks_a);
    Hooks hooks_b;
    for (const std::string& name : common_) {
      if (!values.contains(name)) continue;
      hooks_b.add(name, [&](const std::string& value, const Tensor& tensor) -> std::optional<Tensor> {
        const Tensor& reference = values.at(value);
        if (is_number(tensor.type()) && tensor.shape() == reference.shape()) {
          values_[value].update(tensor, reference);
        }
        return std::nullopt;
      });
    }
    const std::vector<Tensor> outputs_b = b_.run(inputs_b, hooks_b);
    for (size_t i = 0; i < outputs_a.size(); ++i) {
      const Tensor &x = outputs_b[pairs_[i]], &y = outputs_a[i];
      if (x.shape() != y.shape() || !is_number(x.type()) || !is_number(y.type())) {
        fail(ErrorCode::InvalidInput, a_.graph().outputs[i].name, "the output is {} {} in A but {} {} in B",
             name_of(y.type()), to_string(y.shape()), name_of(x.type()), to_string(x.shape()));
      }
      outputs_[i].update(x, y);
    }
    return {outputs_a, outputs_b};
  }

  CompareResult result() const {
    CompareResult result;
    for (const std::string& name : common_) {
      if (const auto it = values_.find(name); it != values_.end()) result.values.push_back(it->second.row(name));
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      result.outputs.push_back(outputs_[i].row(a_.graph().outputs[i].name));
    }
    const Makers makers(a_.graph());
    for (auto* rows : {&result.values, &result.outputs}) {
      for (ValueDifference& row : *rows) makers.name(row);
    }
    result.parting = find_parting(a_.graph(), with_outputs(result));
    for (const auto* rows_in_order : {&result.values, &result.outputs}) {
      const auto it = std::ranges::find_if(*rows_in_order, &ValueDifference::differs);
      if (it != rows_in_order->end() && !result.first_difference) result.first_difference = it->name;
    }
    return result;
  }

 private:
  /// Outputs of another name in B are known as well.
  static std::vector<ValueDifference> with_outputs(const CompareResult& result) {
    std::vector<ValueDifference> rows = result.values;
    rows.insert(rows.end(), result.outputs.begin(), result.outputs.end());
    return rows;
  }

  Side a_;
  Side b_;
  std::vector<std::string> common_;  ///< made by both, in A's order
  std::vector<size_t> pairs_;
  std::map<std::string, Difference> values_;
  std::vector<Difference> outputs_;
};

}  // namespace

CompareResult compare_models(const CompareOptions& options) {
  if (!options.input.empty() && !options.data.empty()) {
    fail(ErrorCode::InvalidConfig, "", "give either --input or --data");
  }
  Comparison comparison(options);
  const Graph &a = comparison.a().graph(), &b = comparison.b().graph();
  if (options.data.empty()) {
    const RunInputs for_a = comparison.a().named([&] { return read_run_inputs(options.input, a); });
    const RunInputs for_b = comparison.b().named([&] { return read_run_inputs(options.input, b); });
    comparison.update(for_a.values, for_b.values);
    CompareResult result = comparison.result();
    result.unused = for_a.unused;
    std::ranges::copy_if(for_b.unused, std::back_inserter(result.unused), [&](const std::string& name) {
      return std::ranges::find(for_a.unused, name) == for_a.unused.end();
    });
    return result;
  }
  const auto open = [&](const Side& side) {
    return side.named([&] {
      return open_dataset(options.data, side.graph().required_inputs(),
                          DatasetOptions{options.limit, tokenizer_of(options.a)});
    });
  };
  const std::unique_ptr<Dataset> for_a = open(comparison.a()), for_b = open(comparison.b());
  const int64_t batch = batch_for(b, batch_for(a, options.batch, *for_a), *for_b);
  CarriedState state_a(*for_a, a), state_b(*for_b, b);
  options.progress->begin("comparing", for_a->size());
  for (int64_t first = 0; first < for_a->size(); first += batch) {
    const int64_t count = std::min(batch, for_a->size() - first);
    const auto [outputs_a, outputs_b] =
        comparison.update(state_a.enter(for_a->read(first, count)), state_b.enter(for_b->read(first, count)));
    state_a.leave(outputs_a);
    state_b.leave(outputs_b);
    options.progress->at(first + count);
  }
  options.progress->end();
  return comparison.result();
}

nlohmann::ordered_json to_json(const CompareResult& result) {
  const auto row_json = [](const ValueDifference& row) -> nlohmann::ordered_json {
    return {{"name", row.name},       {"sqnr_db", row.sqnr_db}, {"cosine", row.cosine}, {"max_abs", row.max_abs},
            {"differs", row.differs}, {"layer", row.layer},     {"op", row.op}};
  };
  const auto rows_json = [&](const std::vector<ValueDifference>& rows) {
    auto array = nlohmann::ordered_json::array();
    for (const ValueDifference& row : rows) array.push_back(row_json(row));
    return array;
  };
  nlohmann::ordered_json document{{"outputs", rows_json(result.outputs)}, {"values", rows_json(result.values)}};
  document["first_difference"] = result.first_difference ? nlohmann::ordered_json(*result.first_difference) : nullptr;
  document["parting"] = nullptr;
  if (result.parting) {
    document["parting"] = row_json(result.parting->at);
    document["parting"]["input_sqnr_db"] = result.parting->input_sqnr_db;
  }
  document["unused"] = result.unused;
  return document;
}

}  // namespace kaon
