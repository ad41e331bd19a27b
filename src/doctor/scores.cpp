#include "doctor/scores.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "eval/metrics.h"

namespace kaon {
namespace {

/// What NaN and Inf count as, and the most that one sample may count: e^-30 of probability left.
constexpr double kWorstKl = 30;

/// The metric whose mean over samples stands for `name`.
std::string metric_of_sample(const std::string& name) { return name == "ppl" ? "loss" : name; }

double energy_of(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return sum;
}

double dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

int64_t end_of(const Scores& scores, int64_t to) { return to == 0 ? scores.size() : to; }

Estimate estimate(double sum, double squares, int64_t count) {
  if (count == 0) return {};
  const double mean = sum / static_cast<double>(count);
  if (count == 1) return {mean, std::fabs(mean)};
  const double variance = std::max(0.0, squares / static_cast<double>(count) - mean * mean);
  return {mean, std::sqrt(variance / static_cast<double>(count - 1))};
}

}  // namespace

double MetricFacts::badness(double value) const {
  if (name == "sqnr_db") return std::pow(10, -value / 10);
  return lower_is_better ? value : 1 - value;
}

double MetricFacts::worse_by(double value, double drop) const {
  if (name == "sqnr_db") return -10 * std::log10(badness(value) + drop);
  return lower_is_better ? value + drop : value - drop;
}

MetricFacts metric_facts(const std::string& name, const Dataset& data) {
  MetricFacts facts;
  facts.name = name;
  if (name.empty()) {
    facts.name = "sqnr_db";
    if (data.has_labels()) facts.name = data.read(0, 1).labels.rank() > 1 ? "loss" : "top1";
  }
  const MetricKind& kind = metric_kind(facts.name);
  facts.needs_labels = kind.needs_labels;
  if (kind.needs_labels && !data.has_labels()) {
    fail(ErrorCode::InvalidInput, facts.name,
         "this metric needs labels, and the data have none; without them there are sqnr_db, kl, agreement, cosine and "
         "mse");
  }
  facts.lower_is_better = kind.lower_is_better;
  facts.classes = kind.by_class;
  return facts;
}

void Scorer::add_reference(const Tensor& output, const Tensor& labels) {
  if (output.rank() == 0 || output.shape()[0] == 0 ||
      (labels.defined() && (labels.rank() == 0 || labels.shape()[0] != output.shape()[0]))) {
    fail(ErrorCode::Unsupported, "output",
         "the model's first output has the shape {}; its first axis must count the samples", to_string(output.shape()));
  }
  const int64_t count = output.shape()[0];
  const std::vector<float> values = output.to_float();
  const auto bad = std::ranges::find_if(values, [](float x) { return !std::isfinite(x); });
  const int64_t each = output.size() / count;
  if (bad != values.end()) {
    fail(ErrorCode::Numeric, "output", "the float model itself gives {} for sample {}; `kaon debug --nan` says where",
         *bad, samples() + (bad - values.begin()) / each);
  }
  const std::vector<int64_t> truth =
      labels.defined() && facts_.needs_labels ? labels.to_int64() : std::vector<int64_t>();
  const int64_t labels_each = std::ssize(truth) / count;
  for (int64_t i = 0; i < count; ++i) {
    Piece piece;
    piece.shape = output.shape();
    piece.shape[0] = 1;
    const auto row = std::span(values).subspan(static_cast<size_t>(i * each), static_cast<size_t>(each));
    piece.output.assign(row.begin(), row.end());
    if (labels.defined()) {
      piece.label_shape = labels.shape();
      piece.label_shape[0] = 1;
    }
    const auto own = std::span(truth).subspan(static_cast<size_t>(i * labels_each), static_cast<size_t>(labels_each));
    piece.labels.assign(own.begin(), own.end());
    double weight = 1;
    if (facts_.needs_labels) {
      weight = static_cast<double>(std::ranges::count_if(own, [](int64_t label) { return label != kIgnoredLabel; }));
    }
    energy_.push_back(energy_of(row));
    weight_.push_back(weight);
    pieces_.push_back(std::move(piece));
  }
  if (facts_.classes) {
    ScoredBatch batch{.samples = 1, .shape = pieces_.back().shape, .output = pieces_.back().output};
    batch.label_shape = pieces_.back().label_shape;
    classes_ = class_axis(batch).classes;
  }
  double sum = 0;
  for (const double energy : energy_) sum += energy;
  mean_energy_ = sum / static_cast<double>(energy_.size());
}

double Scorer::sample_metric(const Piece& piece, std::span<const float> output, int64_t moved) const {
  if (facts_.name == "cosine") return dot(output, piece.output);
  ScoredBatch batch{.samples = 1, .shape = piece.shape, .output = output, .reference = piece.output};
  batch.label_shape = piece.label_shape;
  std::vector<int64_t> labels = piece.labels;
  if (moved != 0) {
    for (int64_t& label : labels) {
      if (label != kIgnoredLabel) label = std::clamp<int64_t>(label + moved, 0, classes_ - 1);
    }
  }
  batch.labels = labels;
  const std::unique_ptr<Metric> metric = metric_kind(metric_of_sample(facts_.name)).make();
  metric->add(batch);
  return metric->value();
}

void Scorer::score(int64_t first, const Tensor& output, Scores& scores) const {
  if (output.rank() == 0 || output.shape()[0] == 0) fail(ErrorCode::Internal, "output", "has no samples");
  const int64_t count = output.shape()[0];
  const std::vector<float> values = output.to_float();
  const int64_t each = output.size() / count;
  if (scores.size() == 0) scores.first = first;
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(first + i);
    const Piece& piece = pieces_[at];
    const auto row = std::span(values).subspan(static_cast<size_t>(i * each), static_cast<size_t>(each));
    const bool finite = std::ranges::all_of(row, [](float x) { return std::isfinite(x); });
    if (!finite) {
      // As wrong as can be.
      ++scores.non_finite;
      const bool lower = facts_.lower_is_better;
      scores.metric.push_back(facts_.name == "mse" ? energy_[at] / static_cast<double>(each) : lower ? kWorstKl : 0);
      scores.kl.push_back(kWorstKl);
      scores.noise.push_back(2 * energy_[at]);
      continue;
    }
    double noise = 0;
    for (size_t k = 0; k < row.size(); ++k) {
      const double difference = static_cast<double>(row[k]) - piece.output[k];
      noise += difference * difference;
    }
    double kl = 0;
    if (facts_.classes && noise > 0) {
      ScoredBatch batch{.samples = 1, .shape = piece.shape, .output = row, .reference = piece.output};
      batch.label_shape = piece.label_shape;
      const std::unique_ptr<Metric> metric = metric_kind("kl").make();
      metric->add(batch);
      kl = std::min(metric->value(), kWorstKl);
    }
    scores.metric.push_back(weight_[at] == 0 || facts_.name == "sqnr_db" ? 0 : sample_metric(piece, row));
    scores.kl.push_back(kl);
    scores.noise.push_back(noise);
  }
}

Scores Scorer::exact() const {
  Scores scores;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const Piece& piece = pieces_[i];
    scores.metric.push_back(weight_[i] == 0 || facts_.name == "sqnr_db" ? 0 : sample_metric(piece, piece.output));
    scores.kl.push_back(0);
    scores.noise.push_back(0);
  }
  return scores;
}

double Scorer::value(const Scores& scores, int64_t from, int64_t to) const {
  double sum = 0, weights = 0, noise = 0, energy = 0, norm = 0;
  for (int64_t i = from; i < end_of(scores, to); ++i) {
    const auto own = static_cast<size_t>(i);
    const auto at = static_cast<size_t>(scores.first + i);
    sum += scores.metric[own] * weight_[at];
    weights += weight_[at];
    noise += scores.noise[own];
    energy += energy_[at];
    // |y|² = |y - r|² + 2 y·r - |r|²
    norm += facts_.name == "cosine" ? scores.noise[own] + 2 * scores.metric[own] - energy_[at] : 0;
  }
  if (facts_.name == "sqnr_db") {
    return noise == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(energy / noise);
  }
  if (facts_.name == "cosine") return norm <= 0 || energy == 0 ? 0 : sum / std::sqrt(norm * energy);
  const double mean = weights == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / weights;
  return facts_.name == "ppl" ? std::exp(mean) : mean;
}

double Scorer::harm(const Scores& scores, int64_t index) const {
  const auto own = static_cast<size_t>(index);
  if (facts_.classes) return scores.kl[own];
  return mean_energy_ == 0 ? 0 : scores.noise[own] / mean_energy_;
}

double Scorer::mean_harm(const Scores& scores, int64_t from, int64_t to) const {
  double sum = 0;
  const int64_t end = end_of(scores, to);
  for (int64_t i = from; i < end; ++i) sum += harm(scores, i);
  return end == from ? 0 : sum / static_cast<double>(end - from);
}

Estimate Scorer::harm_difference(const Scores& a, const Scores& b, int64_t from, int64_t to) const {
  double sum = 0, squares = 0;
  const int64_t end = std::min(end_of(a, to), end_of(b, to));
  for (int64_t i = from; i < end; ++i) {
    const double difference = harm(a, i) - harm(b, i);
    sum += difference;
    squares += difference * difference;
  }
  return estimate(sum, squares, end - from);
}

Estimate Scorer::metric_difference(const Scores& a, const Scores& b, int64_t from, int64_t to) const {
  double sum = 0, squares = 0;
  const int64_t end = std::min(end_of(a, to), end_of(b, to));
  const bool by_noise = facts_.name == "sqnr_db" || facts_.name == "cosine";
  for (int64_t i = from; i < end; ++i) {
    const auto own = static_cast<size_t>(i);
    double difference = 0;
    if (by_noise) {
      difference = mean_energy_ == 0 ? 0 : (a.noise[own] - b.noise[own]) / mean_energy_;
    } else {
      difference = (a.metric[own] - b.metric[own]) * (facts_.lower_is_better ? 1 : -1);
    }
    sum += difference;
    squares += difference * difference;
  }
  return estimate(sum, squares, end - from);
}

double Scorer::sqnr_db(const Scores& scores) const {
  double noise = 0, energy = 0;
  for (int64_t i = 0; i < scores.size(); ++i) {
    noise += scores.noise[static_cast<size_t>(i)];
    energy += energy_[static_cast<size_t>(scores.first + i)];
  }
  return noise == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(energy / noise);
}

double Scorer::mean_kl(const Scores& scores) const {
  if (!facts_.classes) return std::numeric_limits<double>::quiet_NaN();
  double sum = 0;
  for (const double kl : scores.kl) sum += kl;
  return scores.kl.empty() ? 0 : sum / static_cast<double>(scores.kl.size());
}

double Scorer::with_labels_moved(int64_t by) const {
  double sum = 0, weights = 0;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    if (weight_[i] == 0) continue;
    sum += weight_[i] * sample_metric(pieces_[i], pieces_[i].output, by);
    weights += weight_[i];
  }
  return weights == 0 ? 0 : sum / weights;
}

}  // namespace kaon
