#include "eval/evaluate.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
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

bool is_number(DType type) { return type != DType::String && type != DType::Complex64 && type != DType::Complex128; }

/// An output for a batch as float32, NaN refused.
struct OutputValues {
  Tensor tensor;
  std::vector<float> converted;
  std::span<const float> values;

  OutputValues(Tensor output, const std::string& name, int64_t first, int64_t samples, const std::string& whose)
      : tensor(std::move(output)) {
    if (!is_number(tensor.type())) {
      fail(ErrorCode::InvalidInput, whose, "output '{}' holds {}, not numbers; choose others with --output", name,
           name_of(tensor.type()));
    }
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
    fail(ErrorCode::Numeric, whose, "{} of {} values of output '{}' are NaN in samples {} to {}, first in sample {}",
         std::ranges::count_if(values, is_nan), values.size(), name, first, first + samples - 1,
         first + at * samples / std::ssize(values));
  }
};

/// The places of the outputs to look at.
std::vector<size_t> chosen_outputs(const std::vector<std::string>& known, const std::vector<std::string>& names) {
  if (known.empty()) fail(ErrorCode::InvalidInput, "model", "the model has no outputs");
  std::vector<size_t> places;
  for (size_t i = 0; i < known.size() && names.empty(); ++i) places.push_back(i);
  for (const std::string& name : names) {
    const auto found = std::ranges::find(known, name);
    if (found == known.end()) {
      fail(ErrorCode::InvalidInput, "--output", "the model has no output '{}'; it has {}", name,
           fmt::join(known, ", "));
    }
    places.push_back(static_cast<size_t>(found - known.begin()));
  }
  return places;
}

/// The output of the reference that stands for output `place` of the model: that of its name, else of its place.
size_t counterpart(const std::vector<std::string>& model, size_t place, const std::vector<std::string>& reference) {
  const auto found = std::ranges::find(reference, model[place]);
  if (found != reference.end()) return static_cast<size_t>(found - reference.begin());
  if (place < reference.size()) return place;
  fail(ErrorCode::InvalidInput, "reference", "has no output '{}', and only {} outputs", model[place], reference.size());
}

/// The metrics of one output.
class Scores {
 public:
  /// `labelled`: those that need labels are of this output.
  Scores(std::string name, const std::vector<std::string>& metrics, bool labelled, bool alone)
      : name_(std::move(name)), alone_(alone) {
    for (const std::string& metric : metrics) {
      const MetricKind& kind = metric_kind(metric);
      if (kind.needs_labels && !labelled) continue;
      items_.push_back({&kind, kind.make()});
    }
  }

  const std::string& name() const { return name_; }

  void add(const ScoredBatch& batch) {
    for (const Item& item : items_) {
      // One of several outputs may be a number or a count, of which there is no likeliest.
      if (item.kind->by_class && !item.kind->needs_labels && !alone_ && !has_classes(batch.shape)) continue;
      item.metric->add(batch);
    }
  }

  Metrics values() const {
    Metrics values;
    for (const Item& item : items_) values.emplace_back(item.kind->name, item.metric->value());
    return values;
  }

  /// The first metric and its value so far, for the progress bar.
  std::string headline() const {
    return items_.empty() ? "" : fmt::format("{} {:.4g}", items_[0].kind->name, items_[0].metric->value());
  }

 private:
  struct Item {
    const MetricKind* kind;
    std::unique_ptr<Metric> metric;
  };
  std::string name_;
  bool alone_;
  std::vector<Item> items_;
};

/// Each metric where it is worst.
Metrics worst_of(const std::vector<OutputMetrics>& outputs, const std::vector<std::string>& metrics) {
  Metrics worst;
  for (const std::string& name : metrics) {
    const MetricKind& kind = metric_kind(name);
    double value = std::numeric_limits<double>::quiet_NaN();
    for (const OutputMetrics& output : outputs) {
      for (const auto& [metric, here] : output.metrics) {
        if (metric != name || std::isnan(here)) continue;
        value = std::isnan(value) ? here : kind.lower_is_better ? std::max(value, here) : std::min(value, here);
      }
    }
    if (std::isnan(value)) {
      fail(ErrorCode::InvalidInput, name, "nothing to count: {}",
           kind.needs_labels ? fmt::format("every label is {}", kIgnoredLabel) : "no pair of finite values");
    }
    worst.emplace_back(name, value);
  }
  return worst;
}

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
  const auto evaluated = [&](Engine& of) {
    Evaluated subject;
    for (const ValueInfo& info : of.model().graph.outputs) subject.outputs.push_back(info.name);
    subject.run = [&of, state = CarriedState(data, of.model().graph)](const Batch& batch, int64_t, int64_t) mutable {
      std::vector<Tensor> outputs = of.run(state.enter(batch));
      state.leave(outputs);
      return outputs;
    };
    return subject;
  };
  EvalSettings own = settings;
  own.batch = batch_for(engine.model().graph, settings.batch, data);
  std::optional<Evaluated> other;
  if (reference != nullptr) other = evaluated(*reference);
  return evaluate(evaluated(engine), data, metrics, other ? &*other : nullptr, own);
}

EvalResult evaluate(const Evaluated& model, const Dataset& data, const std::vector<std::string>& metrics,
                    const Evaluated* reference, const EvalSettings& settings) {
  check_possible(metrics, data, reference != nullptr);
  const bool with_labels = std::ranges::any_of(metrics, needs_labels);
  const bool with_reference = std::ranges::any_of(metrics, needs_reference);
  std::vector<size_t> places = chosen_outputs(model.outputs, settings.outputs);
  if (!with_reference) places.resize(1);  // labels are of one output
  std::vector<std::string> of_labels;
  std::ranges::copy_if(metrics, std::back_inserter(of_labels), needs_labels);
  std::vector<Scores> scores;
  for (size_t i = 0; i < places.size(); ++i) {
    scores.emplace_back(model.outputs[places[i]], metrics, i == 0, places.size() == 1);
  }
  Scores of_reference("", with_reference ? of_labels : std::vector<std::string>{}, true, true);

  const Stopwatch watch;
  EvalResult result;
  int64_t tokens = 0;
  settings.progress->begin("evaluate", data.size());
  while (result.samples < data.size()) {
    const int64_t first = result.samples;
    const int64_t count = std::min(settings.batch, data.size() - first);
    const Batch batch = data.read(first, count);
    check_finite(batch, first);
    std::vector<int64_t> labels;
    if (with_labels) labels = batch.labels.to_int64();
    const std::vector<Tensor> outputs = model.run(batch, first, count);
    std::vector<Tensor> expected_outputs;
    if (with_reference) expected_outputs = reference->run(batch, first, count);
    for (size_t i = 0; i < places.size(); ++i) {
      const OutputValues output(outputs[places[i]], scores[i].name(), first, count, "model");
      ScoredBatch scored{.first = first, .samples = count, .shape = output.tensor.shape(), .output = output.values};
      // Even where no metric counts labels, their shape says where the classes lie.
      if (i == 0 && batch.labels.defined()) scored.label_shape = batch.labels.shape();
      if (i == 0) scored.labels = labels;
      std::optional<OutputValues> expected;
      if (with_reference) {
        const size_t there = counterpart(model.outputs, places[i], reference->outputs);
        expected.emplace(expected_outputs[there], reference->outputs[there], first, count, "reference");
        if (expected->tensor.shape() != output.tensor.shape()) {
          fail(ErrorCode::InvalidInput, "reference",
               "its output has the shape {}, that of the model, '{}', {}; choose others with --output",
               to_string(expected->tensor.shape()), scores[i].name(), to_string(output.tensor.shape()));
        }
        scored.reference = expected->values;
      }
      scores[i].add(scored);
      scored.output = scored.reference;
      if (i == 0 && with_reference) of_reference.add(scored);
    }
    result.samples += count;
    std::string note = scores[0].headline();
    // Sequences: what people compare is tokens a second.
    if (batch.labels.defined() && batch.labels.rank() == 2) {
      tokens += batch.labels.size();
      note += fmt::format(", {:.0f} tokens/s", static_cast<double>(tokens) / watch.seconds());
    }
    settings.progress->at(result.samples, note);
  }
  settings.progress->end();
  for (const Scores& of_output : scores) result.outputs.push_back({of_output.name(), of_output.values()});
  result.metrics = worst_of(result.outputs, metrics);
  result.reference_metrics = of_reference.values();
  result.seconds = watch.seconds();
  return result;
}

}  // namespace kaon
