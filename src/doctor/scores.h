#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "graph/dataset.h"
#include "graph/tensor.h"

namespace kaon {

/// What a model made of some neighbouring samples, sample by sample.
struct Scores {
  int64_t first = 0;           ///< number of the first sample
  std::vector<double> metric;  ///< of the sample alone: 1 where it is right, its loss …
  std::vector<double> kl;      ///< divergence from the float model's output
  std::vector<double> noise;   ///< Σ (y - y_float)²
  int64_t non_finite = 0;      ///< samples with NaN or Inf in the output

  int64_t size() const { return static_cast<int64_t>(kl.size()); }
};

/// A mean and its standard error.
struct Estimate {
  double mean = 0;
  double error = 0;

  /// Whether it lies above 0 beyond noise.
  bool positive() const { return mean > 2 * error; }
};

/// Which figure is asked for, and which way is better.
struct MetricFacts {
  std::string name;
  bool lower_is_better = false;
  bool needs_labels = false;
  bool classes = false;  ///< the output holds classes: harm is KL, else squared error

  /// Distance from perfect: 0 is best, and differences are what a drop is measured in. For sqnr_db the noise as a share
  /// of the signal, so that a drop of 0.01 allows 20 dB.
  double badness(double value) const;
  /// The value `drop` worse than `value`.
  double worse_by(double value, double drop) const;
};

/// "" takes top1 where samples have one label each, loss where they have several, sqnr_db without labels. Throws
/// InvalidInput for an unknown name, and for a metric that needs labels where `data` have none.
MetricFacts metric_facts(const std::string& name, const Dataset& data);

/// The float model's outputs and the labels of all samples: what every other output is scored against.
class Scorer {
 public:
  Scorer(MetricFacts facts) : facts_(std::move(facts)) {}

  const MetricFacts& facts() const { return facts_; }
  int64_t samples() const { return static_cast<int64_t>(energy_.size()); }
  int64_t classes() const { return classes_; }

  /// The float model's first output for the next samples, and their labels (undefined where there are none). Throws
  /// Unsupported where the output's first axis does not count samples, Numeric where it is not finite.
  void add_reference(const Tensor& output, const Tensor& labels);
  /// The float model's own scores.
  Scores exact() const;
  /// Scores `output` of samples [first, …) and appends them to `scores`.
  void score(int64_t first, const Tensor& output, Scores& scores) const;

  /// The metric over samples [from, to) of `scores`; the whole with to = 0.
  double value(const Scores& scores, int64_t from = 0, int64_t to = 0) const;
  /// The harm of one sample.
  double harm(const Scores& scores, int64_t index) const;
  double mean_harm(const Scores& scores, int64_t from = 0, int64_t to = 0) const;
  /// The mean of harm(a) - harm(b), sample by sample, over samples [from, to); both must hold the same samples.
  Estimate harm_difference(const Scores& a, const Scores& b, int64_t from = 0, int64_t to = 0) const;
  /// The mean of badness(a) - badness(b) of the metric, sample by sample.
  Estimate metric_difference(const Scores& a, const Scores& b, int64_t from = 0, int64_t to = 0) const;
  double sqnr_db(const Scores& scores) const;
  double mean_kl(const Scores& scores) const;
  /// The metric of the float model with its labels moved by `by`: models count classes from 0 or from 1.
  double with_labels_moved(int64_t by) const;

 private:
  struct Piece {
    Shape shape;  ///< of one sample, with 1 in front
    std::vector<float> output;
    Shape label_shape;
    std::vector<int64_t> labels;
  };
  double sample_metric(const Piece& piece, std::span<const float> output, int64_t moved = 0) const;

  MetricFacts facts_;
  std::vector<Piece> pieces_;   ///< by sample
  std::vector<double> energy_;  ///< Σ y_float²
  std::vector<double> weight_;  ///< labels that count
  double mean_energy_ = 0;
  int64_t classes_ = 0;
};

}  // namespace kaon
