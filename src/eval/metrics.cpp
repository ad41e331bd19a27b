#include "eval/metrics.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/parallel.h"
#include "base/text.h"
#include "graph/dataset.h"
#include "numerics/error_metrics.h"
#include "numerics/exponentials.h"

namespace kaon {

namespace {

constexpr int64_t kGrain = 32 * 1024;  // numbers worth waking a second thread for

/// Row `row` of `values`: in place where its elements are neighbours, else copied into `buffer`.
std::span<const float> row_of(std::span<const float> values, const ClassAxis& axis, int64_t row,
                              std::vector<float>& buffer) {
  const auto classes = static_cast<size_t>(axis.classes);
  if (axis.inner == 1) return values.subspan(static_cast<size_t>(row) * classes, classes);
  buffer.resize(classes);
  const int64_t begin = row / axis.inner * axis.classes * axis.inner + row % axis.inner;
  for (int64_t c = 0; c < axis.classes; ++c) {
    buffer[static_cast<size_t>(c)] = values[static_cast<size_t>(begin + c * axis.inner)];
  }
  return buffer;
}

int64_t argmax(std::span<const float> row) { return std::max_element(row.begin(), row.end()) - row.begin(); }

/// The mean over all rows whose label is not to be ignored.
class LabelMetric : public Metric {
 public:
  void add(const ScoredBatch& batch) final {
    const ClassAxis axis = class_axis(batch);
    std::vector<double> scores(static_cast<size_t>(axis.rows()));
    const auto is_ignored = [&](int64_t r) { return batch.labels[static_cast<size_t>(r)] == kIgnoredLabel; };
    parallel_for(0, axis.rows(), std::max<int64_t>(1, kGrain / axis.classes), [&](int64_t begin, int64_t end) {
      std::vector<float> buffer;
      for (int64_t r = begin; r < end; ++r) {
        const int64_t label = batch.labels[static_cast<size_t>(r)];
        if (is_ignored(r)) continue;
        if (label < 0 || label >= axis.classes) {
          fail(ErrorCode::InvalidInput, "labels",
               "sample {} has the label {}; a label must be from 0 to {}, or {} for one that does not count",
               batch.first + r * batch.samples / axis.rows(), label, axis.classes - 1, kIgnoredLabel);
        }
        scores[static_cast<size_t>(r)] = score(row_of(batch.output, axis, r, buffer), label);
      }
    });
    for (int64_t r = 0; r < axis.rows(); ++r) {
      if (is_ignored(r)) continue;
      sum_ += scores[static_cast<size_t>(r)];
      ++count_;
    }
  }
  double value() const override { return sum_ / static_cast<double>(count_); }

 protected:
  virtual double score(std::span<const float> row, int64_t label) const = 0;

 private:
  double sum_ = 0;
  int64_t count_ = 0;
};

/// Share of the rows whose label is among the `k` largest; of equal values the first counts as larger.
template <int64_t k>
class TopK : public LabelMetric {
 protected:
  double score(std::span<const float> row, int64_t label) const override {
    const float own = row[static_cast<size_t>(label)];
    int64_t larger = 0;
    for (int64_t c = 0; c < std::ssize(row); ++c) {
      const float x = row[static_cast<size_t>(c)];
      larger += x > own || (x == own && c < label) ? 1 : 0;
    }
    return larger < k ? 1 : 0;
  }
};

class CrossEntropy : public LabelMetric {
 protected:
  double score(std::span<const float> row, int64_t label) const override {
    return log_sum_exp(row) - row[static_cast<size_t>(label)];
  }
};

class Perplexity : public CrossEntropy {
 public:
  double value() const final { return std::exp(CrossEntropy::value()); }
};

/// sqnr_db, mse and cosine.
template <double (ErrorMetrics::*figure)() const>
class ElementError : public Metric {
 public:
  void add(const ScoredBatch& batch) override {
    ErrorMetrics errors;
    errors.update(batch.output, batch.reference);
    if (errors.broken > 0) {
      fail(ErrorCode::Numeric, "output", "samples {} to {} have {} infinite values where the reference is finite",
           batch.first, batch.first + batch.samples - 1, errors.broken);
    }
    total_.merge(errors);
  }
  double value() const override { return (total_.*figure)(); }

 private:
  ErrorMetrics total_;
};

/// The mean over all rows of a figure of the model's row and the reference's.
class RowPairMetric : public Metric {
 public:
  void add(const ScoredBatch& batch) final {
    const ClassAxis axis = class_axis(batch);
    std::vector<double> scores(static_cast<size_t>(axis.rows()));
    parallel_for(0, axis.rows(), std::max<int64_t>(1, kGrain / axis.classes), [&](int64_t begin, int64_t end) {
      std::vector<float> buffer, reference_buffer;
      for (int64_t r = begin; r < end; ++r) {
        scores[static_cast<size_t>(r)] =
            score(row_of(batch.output, axis, r, buffer), row_of(batch.reference, axis, r, reference_buffer));
      }
    });
    for (const double one : scores) sum_ += one;
    count_ += axis.rows();
  }
  double value() const final { return sum_ / static_cast<double>(count_); }

 protected:
  virtual double score(std::span<const float> row, std::span<const float> reference) const = 0;

 private:
  double sum_ = 0;
  int64_t count_ = 0;
};

/// KL(softmax(reference) || softmax(model)) in nats.
class SoftmaxKl : public RowPairMetric {
 protected:
  double score(std::span<const float> row, std::span<const float> reference) const override {
    constexpr size_t kBlock = 512;
    const float top = row_maximum(reference.data(), std::ssize(reference));
    float shares[kBlock];  // of the reference, times their sum
    double all = 0, gap = 0;
    for (size_t first = 0; first < row.size(); first += kBlock) {
      const size_t count = std::min(kBlock, row.size() - first);
      all += exponentials(reference.data() + first, shares, static_cast<int64_t>(count), top);
      for (size_t i = 0; i < count; ++i) {
        if (shares[i] > 0) gap += shares[i] * (static_cast<double>(reference[first + i]) - row[first + i]);
      }
    }
    const double sum = gap / all - (log_sum_exp(reference) - log_sum_exp(row));
    return std::max(sum, 0.0);
  }
};

class Agreement : public RowPairMetric {
 protected:
  double score(std::span<const float> row, std::span<const float> reference) const override {
    return argmax(row) == argmax(reference) ? 1 : 0;
  }
};

template <class T>
std::unique_ptr<Metric> make() {
  return std::make_unique<T>();
}

}  // namespace

const std::vector<MetricKind>& metric_kinds() {
  static const std::vector<MetricKind> kinds = {
      {.name = "top1", .needs_labels = true, .by_class = true, .make = make<TopK<1>>},
      {.name = "top5", .needs_labels = true, .by_class = true, .make = make<TopK<5>>},
      {.name = "loss", .needs_labels = true, .lower_is_better = true, .by_class = true, .make = make<CrossEntropy>},
      {.name = "ppl", .needs_labels = true, .lower_is_better = true, .by_class = true, .make = make<Perplexity>},
      {.name = "sqnr_db", .needs_reference = true, .make = make<ElementError<&ErrorMetrics::sqnr_db>>},
      {.name = "mse", .needs_reference = true, .lower_is_better = true, .make = make<ElementError<&ErrorMetrics::mse>>},
      {.name = "cosine", .needs_reference = true, .make = make<ElementError<&ErrorMetrics::cosine>>},
      {.name = "kl", .needs_reference = true, .lower_is_better = true, .by_class = true, .make = make<SoftmaxKl>},
      {.name = "agreement", .needs_reference = true, .by_class = true, .make = make<Agreement>}};
  return kinds;
}

const MetricKind& metric_kind(const std::string& name) {
  std::vector<std::string> known;
  for (const MetricKind& kind : metric_kinds()) {
    if (kind.name == name) return kind;
    known.push_back(kind.name);
  }
  const std::string near = nearest(name, known);
  fail(ErrorCode::InvalidInput, "metric", "unknown metric '{}'{}", name,
       near.empty() ? fmt::format("; known are {}", fmt::join(known, ", ")) : "; did you mean '" + near + "'?");
}

bool has_classes(const Shape& shape) { return !shape.empty() && element_count(shape) > 0; }

ClassAxis class_axis(const ScoredBatch& batch) {
  const Shape& shape = batch.shape;
  const auto rank = std::ssize(shape);
  if (rank == 0) fail(ErrorCode::InvalidInput, "output", "a scalar has no classes");
  const bool last = batch.label_shape.empty()
                        ? rank == 3
                        : std::ranges::equal(batch.label_shape, std::span(shape).first(shape.size() - 1));
  const int64_t axis = last || rank == 1 ? rank - 1 : 1;
  ClassAxis result;
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t extent = shape[static_cast<size_t>(i)];
    (i < axis ? result.outer : i == axis ? result.classes : result.inner) *= extent;
  }
  if (result.classes == 0) fail(ErrorCode::InvalidInput, "output", "shape {} has no classes", to_string(shape));
  if (!batch.labels.empty() && std::ssize(batch.labels) != result.rows()) {
    fail(ErrorCode::InvalidInput, "labels", "shape {} does not fit an output of shape {}; {} labels are needed",
         to_string(batch.label_shape), to_string(shape), result.rows());
  }
  return result;
}

}  // namespace kaon
