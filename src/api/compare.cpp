#include "api/compare.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "api/run_inputs.h"
#include "base/error.h"
#include "engine/engine.h"
#include "io/onnx/onnx.h"
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

/// Both of one shape, and numbers.
ValueDifference compare_values(const std::string& name, const Tensor& value, const Tensor& reference) {
  const std::vector<float> x = value.to_float(), y = reference.to_float();
  ErrorMetrics metrics;
  metrics.update(x, y);
  ValueDifference row{name, metrics.sqnr_db(), metrics.cosine(), metrics.max_abs(), false};
  const bool equal = value.type() == reference.type() && std::ranges::equal(value.bytes(), reference.bytes());
  row.differs =
      !equal && ((metrics.count > 0 && metrics.sqnr_db() < kNoiseDb) || (metrics.skipped > 0 && !same_specials(x, y)));
  return row;
}

/// An engine and its inputs; errors name the model's file.
struct Side {
  Engine engine;
  RunInputs inputs;

  Side(const std::filesystem::path& model, Model read, const std::filesystem::path& input) try
      : engine(std::move(read)), inputs(read_run_inputs(input, engine.model().graph)) {
  } catch (const Error& error) {
    throw Error(error.code(), error.what(), model.string());
  }

  std::vector<Tensor> run(const std::filesystem::path& model, const Hooks& hooks) try {
    return engine.run(inputs.values, hooks);
  } catch (const Error& error) {
    throw Error(error.code(), error.what(), model.string());
  }
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

}  // namespace

CompareResult compare_models(const CompareOptions& options) {
  Model model_b = read_onnx(options.b);
  const std::vector<std::string> names_b = made_values(model_b.graph);
  const std::set<std::string> known_b(names_b.begin(), names_b.end());

  CompareResult result;
  TensorMap values_a;
  std::vector<Tensor> outputs_a;
  std::vector<ValueInfo> infos_a;
  std::vector<std::string> common;
  {
    Side a(options.a, read_onnx(options.a), options.input);
    result.unused = a.inputs.unused;
    infos_a = a.engine.model().graph.outputs;
    common = made_values(a.engine.model().graph);
    std::erase_if(common, [&](const std::string& name) { return !known_b.contains(name); });
    Hooks hooks;
    for (const std::string& name : common) {
      hooks.add(name, [&](const std::string& value, const Tensor& tensor) -> std::optional<Tensor> {
        if (is_number(tensor.type())) {
          values_a.insert_or_assign(value, Tensor::copy_bytes(tensor.type(), tensor.shape(), tensor.bytes()));
        }
        return std::nullopt;
      });
    }
    outputs_a = a.run(options.a, hooks);
  }

  Side b(options.b, std::move(model_b), options.input);
  for (const std::string& name : b.inputs.unused) {
    if (std::ranges::find(result.unused, name) == result.unused.end()) result.unused.push_back(name);
  }
  std::map<std::string, ValueDifference> rows;
  Hooks hooks;
  for (const std::string& name : common) {
    if (!values_a.contains(name)) continue;
    hooks.add(name, [&](const std::string& value, const Tensor& tensor) -> std::optional<Tensor> {
      const Tensor& reference = values_a.at(value);
      if (is_number(tensor.type()) && tensor.shape() == reference.shape()) {
        rows.insert_or_assign(value, compare_values(value, tensor, reference));
      }
      return std::nullopt;
    });
  }
  const std::vector<ValueInfo>& infos_b = b.engine.model().graph.outputs;
  const std::vector<size_t> pairs = pair_outputs(infos_a, infos_b, options);
  const std::vector<Tensor> outputs_b = b.run(options.b, hooks);

  for (const std::string& name : common) {
    if (const auto it = rows.find(name); it != rows.end()) result.values.push_back(it->second);
  }
  for (size_t i = 0; i < outputs_a.size(); ++i) {
    const Tensor &x = outputs_b[pairs[i]], &y = outputs_a[i];
    if (x.shape() != y.shape() || !is_number(x.type()) || !is_number(y.type())) {
      fail(ErrorCode::InvalidInput, infos_a[i].name, "the output is {} {} in A but {} {} in B", name_of(y.type()),
           to_string(y.shape()), name_of(x.type()), to_string(x.shape()));
    }
    result.outputs.push_back(compare_values(infos_a[i].name, x, y));
  }
  for (const auto* rows_in_order : {&result.values, &result.outputs}) {
    const auto it = std::ranges::find_if(*rows_in_order, &ValueDifference::differs);
    if (it != rows_in_order->end() && !result.first_difference) result.first_difference = it->name;
  }
  return result;
}

nlohmann::ordered_json to_json(const CompareResult& result) {
  const auto rows_json = [](const std::vector<ValueDifference>& rows) {
    auto array = nlohmann::ordered_json::array();
    for (const ValueDifference& row : rows) {
      array.push_back({{"name", row.name},
                       {"sqnr_db", row.sqnr_db},
                       {"cosine", row.cosine},
                       {"max_abs", row.max_abs},
                       {"differs", row.differs}});
    }
    return array;
  };
  nlohmann::ordered_json document{{"outputs", rows_json(result.outputs)}, {"values", rows_json(result.values)}};
  document["first_difference"] = result.first_difference ? nlohmann::ordered_json(*result.first_difference) : nullptr;
  document["unused"] = result.unused;
  return document;
}

}  // namespace kaon
