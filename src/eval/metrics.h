#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/tensor.h"

namespace kaon {

/// An output of one batch, its labels and what a reference model gave for it.
struct ScoredBatch {
  int64_t first = 0;    ///< number of its first sample
  int64_t samples = 0;  ///< in it
  Shape shape;          ///< of the output
  std::span<const float> output;
  std::span<const float> reference;  ///< empty where there is no reference
  Shape label_shape;                 ///< empty where the data have no labels
  std::span<const int64_t> labels;   ///< empty where no metric asked for them
};

/// One figure over a stream of batches.
class Metric {
 public:
  virtual ~Metric() = default;
  virtual void add(const ScoredBatch& batch) = 0;
  /// Over what was added so far; NaN where nothing of it counts.
  virtual double value() const = 0;
};

struct MetricKind {
  std::string name;
  bool needs_labels = false;
  bool needs_reference = false;
  bool lower_is_better = false;
  bool by_class = false;  ///< looks at rows along an axis of classes
  std::unique_ptr<Metric> (*make)();
};

/// top1, top5, loss, ppl, sqnr_db, mse, cosine, kl, agreement.
const std::vector<MetricKind>& metric_kinds();
/// Throws InvalidInput with the nearest known name.
const MetricKind& metric_kind(const std::string& name);

/// Where the classes lie in an output. With labels: the last axis where they have the output's shape without it, else
/// axis 1. Without labels: the last axis of a sequence [samples, steps, classes], else axis 1.
struct ClassAxis {
  int64_t outer = 1;  ///< rows = outer · inner; row r has the elements (r / inner · classes + c) · inner + r % inner
  int64_t classes = 1;
  int64_t inner = 1;

  int64_t rows() const { return outer * inner; }
};

/// Whether an output of this shape has an axis of classes at all.
bool has_classes(const Shape& shape);

/// Throws InvalidInput where the labels do not fit the output.
ClassAxis class_axis(const ScoredBatch& batch);

}  // namespace kaon
