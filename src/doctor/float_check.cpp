#include "doctor/float_check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "engine/engine.h"
#include "numerics/error_metrics.h"

namespace kaon {
namespace {

/// Sums in another order and folded batch norms stay above this.
constexpr double kSameDb = 80;
constexpr int64_t kCompared = 16;
constexpr int64_t kTried = 32;
/// So much must preprocessing change before it is to blame.
constexpr double kBigChange = 0.05;

/// "" where the file's graph and the prepared one agree, else the first value that differs.
std::string first_difference(const Patient& patient, double& sqnr_db) {
  Engine raw(patient.file());
  Engine prepared(patient.quantized().original);
  const int64_t batch = patient.batch();
  ErrorMetrics all;
  const int64_t count = std::min(std::max(kCompared / batch, int64_t{1}) * batch, patient.data().size());
  for (int64_t first = 0; first < count; first += batch) {
    const TensorMap inputs = patient.data().read(first, std::min(batch, count - first)).inputs;
    const std::vector<Tensor> expected = raw.run(inputs);
    const std::vector<Tensor> found = prepared.run(inputs);
    for (size_t k = 0; k < expected.size(); ++k) {
      if (expected[k].type() == DType::Float32) all.update(found[k].as<float>(), expected[k].as<float>());
    }
  }
  sqnr_db = all.sqnr_db();
  if (all.count == 0 || !(sqnr_db < kSameDb)) return "";
  // Values that both have, in the file's order.
  const TensorMap inputs = patient.data().read(0, std::min(batch, count)).inputs;
  std::map<std::string, Tensor> seen;
  std::set<std::string> there;
  for (const Node& node : patient.quantized().original.graph.nodes)
    there.insert(node.outputs.begin(), node.outputs.end());
  const auto keep = [&](const std::string& name, const Tensor& value) {
    seen[name] = Tensor::copy_bytes(value.type(), value.shape(), value.bytes());
    return std::nullopt;
  };
  Hooks hooks;
  std::vector<std::string> order;
  for (const Node& node : patient.file().graph.nodes) {
    for (const std::string& output : node.outputs) {
      if (!there.contains(output)) continue;
      order.push_back(output);
      hooks.add(output, keep);
    }
  }
  raw.run(inputs, hooks);
  std::map<std::string, Tensor> expected;
  expected.swap(seen);
  prepared.run(inputs, hooks);
  for (const std::string& name : order) {
    const Tensor& a = expected[name];
    const Tensor& b = seen[name];
    if (!a.defined() || !b.defined() || a.type() != DType::Float32 || a.shape() != b.shape()) continue;
    ErrorMetrics one;
    one.update(b.as<float>(), a.as<float>());
    if (one.sqnr_db() < kSameDb) return name;
  }
  return patient.file().graph.outputs.empty() ? "output" : patient.file().graph.outputs[0].name;
}

/// Moments of the first floating-point input.
struct InputSeen {
  std::string name;
  double min = 0, max = 0, mean = 0, deviation = 0;
};

InputSeen look_at(const Dataset& data, int64_t batch) {
  InputSeen seen;
  Moments moments;
  const int64_t count = std::min(data.size(), kTried);
  for (int64_t first = 0; first < count; first += batch) {
    for (const auto& [name, tensor] : data.read(first, std::min(batch, count - first)).inputs) {
      if (tensor.type() != DType::Float32 || (!seen.name.empty() && seen.name != name)) continue;
      seen.name = name;
      moments.update(tensor.as<float>());
    }
  }
  seen.min = moments.min;
  seen.max = moments.max;
  seen.mean = moments.mean;
  seen.deviation = moments.stddev();
  return seen;
}

/// Ways in which preprocessing goes wrong most often, undone.
struct Remedy {
  const char* name;
  std::function<void(std::vector<float>& values, const Shape& shape)> apply;
};

void scale_by(std::vector<float>& values, float factor, float offset) {
  for (float& value : values) value = value * factor + offset;
}

/// Reverses the channels of an image, N 3 H W or N H W 3.
void reverse_channels(std::vector<float>& values, const Shape& shape) {
  if (shape.size() != 4) return;
  const size_t axis = shape[1] == 3 ? 1 : shape[3] == 3 ? 3 : 0;
  if (axis == 0) return;
  const auto inner = static_cast<size_t>(axis == 1 ? shape[2] * shape[3] : 1);
  for (size_t at = 0; at < values.size(); at += 3 * inner) {
    for (size_t i = 0; i < inner; ++i) std::swap(values[at + i], values[at + 2 * inner + i]);
  }
}

/// With ImageNet's means and deviations put on, or taken off.
void normalize(std::vector<float>& values, const Shape& shape, bool on) {
  if (shape.size() != 4 || shape[1] != 3) return;
  constexpr std::array<float, 3> kMean = {0.485F, 0.456F, 0.406F};
  constexpr std::array<float, 3> kDeviation = {0.229F, 0.224F, 0.225F};
  const auto inner = static_cast<size_t>(shape[2] * shape[3]);
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t c = i / inner % 3;
    values[i] = on ? (values[i] - kMean[c]) / kDeviation[c] : values[i] * kDeviation[c] + kMean[c];
  }
}

const std::vector<Remedy>& remedies() {
  static const std::vector<Remedy> all = {
      {"values divided by 255", [](auto& values, const Shape&) { scale_by(values, 1 / 255.0F, 0); }},
      {"values multiplied by 255", [](auto& values, const Shape&) { scale_by(values, 255, 0); }},
      {"values brought from [0, 1] to [-1, 1]", [](auto& values, const Shape&) { scale_by(values, 2, -1); }},
      {"values brought from [0, 255] to [-1, 1]", [](auto& values, const Shape&) { scale_by(values, 2 / 255.0F, -1); }},
      {"values brought from [-1, 1] to [0, 1]", [](auto& values, const Shape&) { scale_by(values, 0.5F, 0.5F); }},
      {"values brought from [-1, 1] to [0, 255]", [](auto& values, const Shape&) { scale_by(values, 127.5F, 127.5F); }},
      {"128 taken from the values", [](auto& values, const Shape&) { scale_by(values, 1, -128); }},
      {"128 added to the values", [](auto& values, const Shape&) { scale_by(values, 1, 128); }},
      {"channels in reverse order (RGB, BGR)", reverse_channels},
      {"ImageNet's means and deviations put on", [](auto& v, const Shape& s) { normalize(v, s, true); }},
      {"ImageNet's means and deviations taken off", [](auto& v, const Shape& s) { normalize(v, s, false); }},
      {"values divided by 255, then ImageNet's means and deviations put on",
       [](auto& v, const Shape& s) { scale_by(v, 1 / 255.0F, 0), normalize(v, s, true); }},
      {"ImageNet's means and deviations taken off, then values multiplied by 255",
       [](auto& v, const Shape& s) { normalize(v, s, false), scale_by(v, 255, 0); }},
  };
  return all;
}

/// What the float model's metric on the first samples becomes with each remedy; the best of them that is better beyond
/// chance.
struct Found {
  std::string name;
  double value = 0;
  double before = 0;
};

std::optional<Found> find_remedy(Patient& patient, const Scores& exact, const std::string& input) {
  const Scorer& scorer = patient.scorer();
  const int64_t batch = patient.batch();
  const int64_t count = std::min(patient.samples(), std::max(kTried / batch, int64_t{1}) * batch);
  Scores here;
  here.metric.assign(exact.metric.begin(), exact.metric.begin() + count);
  here.kl.assign(static_cast<size_t>(count), 0);
  here.noise = here.kl;
  std::optional<Found> best;
  double best_gain = 0;
  Engine engine(patient.quantized().original);
  for (const Remedy& remedy : remedies()) {
    Scores scores;
    for (int64_t first = 0; first < count; first += batch) {
      TensorMap inputs = patient.data().read(first, std::min(batch, count - first)).inputs;
      Tensor& tensor = inputs[input];
      std::vector<float> values = tensor.to_float();
      remedy.apply(values, tensor.shape());
      tensor = Tensor::of(tensor.shape(), values);
      scorer.score(first, engine.run(inputs).at(0), scores);
    }
    patient.count_samples(static_cast<double>(count));
    const Estimate gain = scorer.metric_difference(here, scores);
    if (gain.mean < std::max(4 * gain.error, kBigChange) || gain.mean <= best_gain) continue;
    best_gain = gain.mean;
    best = {remedy.name, scorer.value(scores), scorer.value(here)};
  }
  return best;
}

Cause data_mismatch(const InputSeen& seen, double value, std::string text) {
  Cause cause;
  cause.kind = CauseKind::DataMismatch;
  cause.share = 1;
  cause.evidence = {{"float", value},
                    {"input_min", seen.min},
                    {"input_max", seen.max},
                    {"input_mean", seen.mean},
                    {"input_deviation", seen.deviation}};
  if (!seen.name.empty()) cause.layers = {seen.name};
  cause.text = std::move(text);
  return cause;
}

}  // namespace

FloatCheck check_float(Patient& patient) {
  FloatCheck check;
  const Stopwatch watch;
  const double before = patient.forwards();
  check.step.number = 1;
  check.step.name = "float check";
  double sqnr_db = 0;
  const std::string differs = first_difference(patient, sqnr_db);
  patient.run_float();
  const Scorer& scorer = patient.scorer();
  const MetricFacts& facts = scorer.facts();
  check.exact = scorer.exact();
  const double value = scorer.value(check.exact);
  const InputSeen seen = look_at(patient.data(), patient.batch());
  check.step.numbers = {{"float", value},        {"prepared_sqnr_db", sqnr_db}, {"input_min", seen.min},
                        {"input_max", seen.max}, {"input_mean", seen.mean},     {"input_deviation", seen.deviation}};
  const auto finish = [&](std::string finding) {
    check.step.finding = std::move(finding);
    check.step.seconds = watch.seconds();
    check.step.forwards = patient.forwards() - before;
    return check;
  };

  if (!differs.empty()) {
    Cause cause;
    cause.kind = CauseKind::FloatMismatch;
    cause.share = 1;
    cause.layers = {differs};
    cause.evidence = {{"sqnr_db", sqnr_db}};
    cause.confirmed_by = "the file's graph and the prepared float model, run side by side";
    cause.text = fmt::format(
        "with every quantizer off, the prepared model differs from the file by {:.1f} dB; {} is the "
        "first value that does",
        sqnr_db, differs);
    check.cause = cause;
    return finish(cause.text);
  }
  const std::string looks = seen.name.empty()
                                ? ""
                                : fmt::format("; {} lies in [{:.4g}, {:.4g}] with mean {:.4g} and deviation {:.4g}",
                                              seen.name, seen.min, seen.max, seen.mean, seen.deviation);
  if (facts.needs_labels) {
    const auto weight = static_cast<double>(patient.samples());
    const auto classes = static_cast<double>(scorer.classes());
    const bool top = !facts.lower_is_better;
    const double chance = facts.name == "top5" ? 5 / classes : 1 / classes;
    const double spread = std::sqrt(std::max(chance * (1 - chance), 1e-12) / weight);
    const bool by_chance =
        top ? value < chance + 4 * spread : (facts.name == "ppl" ? value >= classes : value >= std::log(classes));
    bool unexpected = false;
    if (patient.options().expect) {
      const double wanted = *patient.options().expect;
      const double noise = top ? 3 * std::sqrt(std::max(wanted * (1 - wanted), 0.0) / weight) : 0;
      unexpected = facts.badness(value) - facts.badness(wanted) > std::max(patient.options().max_drop, noise);
    }
    std::optional<Found> found;
    if (!seen.name.empty()) found = find_remedy(patient, check.exact, seen.name);
    if (!found && (by_chance || unexpected) && scorer.classes() > 2) {
      for (const int64_t by : {-1, 1}) {
        const double moved = scorer.with_labels_moved(by);
        const double now = facts.name == "ppl" ? std::log(value) : value;
        const bool better = top ? moved > now + 0.1 : moved < 0.7 * now;
        if (better) found = {fmt::format("{} {} labels", by > 0 ? "1 added to" : "1 taken from", "all"), moved, value};
      }
    }
    if (found) {
      Cause cause = data_mismatch(
          seen, value,
          fmt::format("the float model itself does badly on these data: {} {:.4g}; with {} it has {:.4g} on the same "
                      "samples{}",
                      facts.name, found->before, found->name, found->value, looks));
      cause.confirmed_by = found->name;
      cause.evidence.emplace_back("with_remedy", found->value);
      check.cause = cause;
      return finish(cause.text);
    }
    if (by_chance || unexpected) {
      Cause cause = data_mismatch(
          seen, value,
          unexpected ? fmt::format("the float model has {} {:.4g} on these data, not {:.4g} as expected: check "
                                   "preprocessing and labels{}",
                                   facts.name, value, *patient.options().expect, looks)
                     : fmt::format("the float model is no better than chance on these data ({} {:.4g}): check "
                                   "preprocessing and labels{}",
                                   facts.name, value, looks));
      cause.confirmed_by = unexpected ? "the figure that was expected" : "chance";
      if (unexpected) cause.evidence.emplace_back("expected", *patient.options().expect);
      check.cause = cause;
      return finish(cause.text);
    }
  }
  return finish(fmt::format(
      "the float model has {} {:.4g} on {} samples; the prepared model {}{}", facts.name, value, patient.samples(),
      std::isinf(sqnr_db) ? "equals the file" : fmt::format("agrees with the file to {:.0f} dB", sqnr_db), looks));
}

}  // namespace kaon
