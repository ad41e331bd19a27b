#include "eval/evaluate.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/stopwatch.h"
#include "eval/metrics.h"

namespace kaon {

namespace {

void check_possible(const std::vector<std::string>& metrics, const Dataset& data, bool has_reference) {
  for (const std::string& name : metrics) {
    const MetricKind& kind = metric_kind(name);
    if (kind.needs_labels && !data.has_labels()) {
      fail(ErrorCode::InvalidInput, name, "this metric needs labels, and the data have none");
    }
    if (kind.needs_reference && !has_reference) {
      fail(ErrorCode::InvalidInput, name, "this metric needs a reference model");
    }
  }
}

/// The first output for a batch as float32, NaN refused.
struct FirstOutput {
  Tensor tensor;
  std::vector<float> converted;
  std::span<const float> values;

  FirstOutput(const OutputOf& model, const Batch& batch, int64_t first, int64_t samples, const std::string& whose)
      : tensor(model(batch, first, samples)) {
    if (tensor.type() == DType::Float32) {
      values = tensor.as<float>();
    } else {
      converted = tensor.to_float();
      values = converted;
    }
    const auto is_nan = [](float x) { return std::isnan(x); };
    const auto nan = std::ranges::find_if(values, is_nan);
    if (nan == values.end()) return;
    const int64_t at = nan - values.begin();
    fail(ErrorCode::Numeric, whose, "{} of {} values of the output are NaN in samples {} to {}, first in sample {}",
         std::ranges::count_if(values, is_nan), values.size(), first, first + samples - 1,
         first + at * samples / std::ssize(values));
  }
};

}  // namespace

const std::vector<std::string>& metric_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const MetricKind& kind : metric_kinds()) all.push_back(kind.name);
    return all;
  }();
  return names;
}

bool needs_labels(const std::string& metric) { return metric_kind(metric).needs_labels; }

bool needs_reference(const std::string& metric) { return metric_kind(metric).needs_reference; }

EvalResult evaluate(Engine& engine, const Dataset& data, const std::vector<std::string>& metrics, Engine* reference,
                    const EvalSettings& settings) {
  const auto output_of = [&](Engine& of) {
    return [&of, state = CarriedState(data, of.model().graph)](const Batch& batch, int64_t, int64_t) mutable {
      std::vector<Tensor> outputs = of.run(state.enter(batch));
      state.leave(outputs);
      if (outputs.empty()) fail(ErrorCode::InvalidInput, "output", "the model has none");
      return std::move(outputs.front());
    };
  };
  EvalSettings own = settings;
  own.batch = batch_for(engine.model().graph, settings.batch, data);
  return evaluate(output_of(engine), data, metrics, reference == nullptr ? OutputOf() : output_of(*reference), own);
}

EvalResult evaluate(const OutputOf& model, const Dataset& data, const std::vector<std::string>& metrics,
                    const OutputOf& reference, const EvalSettings& settings) {
  check_possible(metrics, data, static_cast<bool>(reference));
  const bool with_labels = std::ranges::any_of(metrics, needs_labels);
  const bool with_reference = std::ranges::any_of(metrics, needs_reference);
  std::vector<std::unique_ptr<Metric>> at_work;
  std::vector<std::pair<std::string, std::unique_ptr<Metric>>> of_reference;
  for (const std::string& name : metrics) {
    at_work.push_back(metric_kind(name).make());
    if (with_reference && !needs_reference(name)) of_reference.emplace_back(name, metric_kind(name).make());
  }

  const Stopwatch watch;
  EvalResult result;
  int64_t tokens = 0;
  settings.progress->begin("evaluate", data.size());
  while (result.samples < data.size()) {
    const int64_t first = result.samples;
    const int64_t count = std::min(settings.batch, data.size() - first);
    const Batch batch = data.read(first, count);
    check_finite(batch, first);
    const FirstOutput output(model, batch, first, count, "model");
    ScoredBatch scored{.first = first, .samples = count, .shape = output.tensor.shape(), .output = output.values};

    // Even where no metric counts labels, their shape says where the classes lie.
    if (batch.labels.defined()) scored.label_shape = batch.labels.shape();
    std::vector<int64_t> labels;
    if (with_labels) {
      labels = batch.labels.to_int64();
      scored.labels = labels;
    }
    std::optional<FirstOutput> expected;
    if (with_reference) {
      expected.emplace(reference, batch, first, count, "reference");
      if (expected->tensor.shape() != output.tensor.shape()) {
        fail(ErrorCode::InvalidInput, "reference", "its output has the shape {}, that of the model {}",
             to_string(expected->tensor.shape()), to_string(output.tensor.shape()));
      }
      scored.reference = expected->values;
    }
    for (const auto& metric : at_work) metric->add(scored);
    scored.output = scored.reference;
    for (const auto& [name, metric] : of_reference) metric->add(scored);
    result.samples += count;
    std::string note = metrics.empty() ? "" : fmt::format("{} {:.4g}", metrics.front(), at_work.front()->value());
    // Sequences: what people compare is tokens a second.
    if (batch.labels.defined() && batch.labels.rank() == 2) {
      tokens += batch.labels.size();
      note += fmt::format(", {:.0f} tokens/s", static_cast<double>(tokens) / watch.seconds());
    }
    settings.progress->at(result.samples, note);
  }
  settings.progress->end();
  for (size_t i = 0; i < metrics.size(); ++i) {
    const double value = at_work[i]->value();
    if (std::isnan(value)) {
      fail(ErrorCode::InvalidInput, metrics[i], "nothing to count: {}",
           needs_labels(metrics[i]) ? fmt::format("every label is {}", kIgnoredLabel) : "no pair of finite values");
    }
    result.metrics.emplace_back(metrics[i], value);
  }
  for (const auto& [name, metric] : of_reference) result.reference_metrics.emplace_back(name, metric->value());
  result.seconds = watch.seconds();
  return result;
}

}  // namespace kaon
