#pragma once
// Small patients with a known disease. The networks are random features under a classifier of class means, which is as
// good as a trained one on the clusters they are shown, and made in milliseconds.
#include <memory>
#include <string>
#include <vector>

#include "doctor/diagnosis.h"
#include "graph/dataset.h"
#include "quant/config.h"

namespace kaon::clinic {

/// Images of eight clusters under the name "x" [N, 3, 12, 12], and the cluster of each.
class Images : public Dataset {
 public:
  Images(int64_t samples, uint64_t prototypes, uint64_t seed);

  int64_t size() const override { return std::ssize(labels_); }
  bool has_labels() const override { return true; }
  Batch read(int64_t first, int64_t count) const override;

  /// Samples [first, first + count) multiplied by `factor`.
  void scale(float factor, int64_t first, int64_t count);

  static constexpr int64_t kClasses = 8;
  static constexpr int64_t kSide = 12;

 private:
  std::vector<float> values_;
  std::vector<int64_t> labels_;
};

struct Patient {
  std::string name;
  Model model;
  Config config;
  std::shared_ptr<const Dataset> data;
  std::shared_ptr<const Dataset> calibration;
  double max_drop = 0.02;
  Verdict verdict = Verdict::Cured;
  std::vector<CauseKind> causes;    ///< any of these may be named first; none: healthy
  std::vector<std::string> layers;  ///< one of these must be among the first that the cause names; none: any
};

/// The names of all diseases; the last is none.
const std::vector<std::string>& diseases();
/// One patient; the same for the same disease and seed.
Patient make_patient(const std::string& disease, uint64_t seed);

}  // namespace kaon::clinic
