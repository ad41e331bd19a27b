#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "quant/observer_error.h"
#include "quant/observer_histogram.h"

namespace kaon {

namespace {

double p_log_p(double p) { return p == 0 ? 0 : p * std::log(p); }

class Distribution {
 public:
  explicit Distribution(const Histogram& histogram)
      : histogram_(histogram), counts_(histogram.counts().begin(), histogram.counts().end()) {
    for (int64_t i = 0; i < std::ssize(counts_); ++i) centres_.push_back(histogram.edge(i) + histogram.width() / 2);
    below_.push_back(0);
    for (const double count : counts_) {
      logs_.push_back(p_log_p(count));
      below_.push_back(below_.back() + count);
    }
  }

  /// KL(p || q) in nats: p has what `range` clips in its outermost bins, q has not, which is the price of clipping; and
  /// in q the bins between two rounding points are equal, which is the price of rounding.
  double divergence(Range range, const ErrorModel& model, ScaleZero params) const {
    const size_t begin = bin_of(range.min);
    const size_t end = bin_of(range.max) + 1;
    const double total = below_.back();
    const double clipped_low = below_[begin];
    const double clipped_high = total - below_[end];
    std::vector<double> levels = model.quantized(centres_, params);

    double sum = 0;
    for (size_t i = begin; i < end;) {
      size_t stop = i;
      double q = 0;
      double p = 0;
      double p_logs = 0;
      int64_t in_use = 0;
      do {
        const double clipped = (stop == begin ? clipped_low : 0) + (stop + 1 == end ? clipped_high : 0);
        const double count = counts_[stop];
        q += count;
        p += count + clipped;
        p_logs += clipped == 0 ? logs_[stop] : p_log_p(count + clipped);
        in_use += count + clipped > 0 ? 1 : 0;
        ++stop;
      } while (stop < end && levels[stop] == levels[i] && !at_zero(stop) && !at_zero(stop - 1));
      if (p > 0 && q == 0) return std::numeric_limits<double>::infinity();
      if (p > 0) sum += p_logs - p * std::log(q / static_cast<double>(in_use));
      i = stop;
    }
    return sum / total + std::log((total - clipped_low - clipped_high) / total);
  }

 private:
  size_t bin_of(double bound) const {
    const double bin = std::floor((bound - histogram_.edge(0)) / histogram_.width());
    return static_cast<size_t>(std::clamp(bin, 0.0, static_cast<double>(counts_.size() - 1)));
  }
  /// Whether 0 is an edge of the bin.
  bool at_zero(size_t i) const {
    const int64_t bin = histogram_.first_bin() + static_cast<int64_t>(i);
    return bin == 0 || bin == -1;
  }

  const Histogram& histogram_;
  std::vector<double> counts_;
  std::vector<double> centres_;
  std::vector<double> logs_;   // counts_[i] ln counts_[i]
  std::vector<double> below_;  // values in the bins before bin i
};

/// The threshold at which the quantized values tell most about the seen ones: least KL divergence of the distribution
/// that is left when the bins between two rounding points are made equal (Migacz, "8-bit Inference with TensorRT"). Two
/// things differ from that talk. The bins next to 0, where ReLU piles up exact zeros, stand for themselves, since 0 is
/// always representable. And a threshold must not raise the squared error above that of the full range.
class Entropy : public HistogramObserver {
 public:
  using HistogramObserver::HistogramObserver;

 protected:
  Range choose(Range all) const override {
    constexpr int kThresholds = 128;
    const ErrorModel error(histogram(), spec());
    const Distribution seen(histogram());
    const auto divergence = [&](Range range) {
      const Format& f = format(spec().format);
      return seen.divergence(range, error, choose_scale(range, f, symmetry_of(spec()), spec().scale_type));
    };
    const double most = error(all);
    const double amax = std::max(-all.min, all.max);
    Range best = all;
    double least = divergence(all);
    for (int k = kThresholds - 1; k > 0; --k) {
      const auto bound = static_cast<float>(amax * k / kThresholds);
      const Range range{std::max(all.min, -bound), std::min(all.max, bound)};
      if (error(range) > most) continue;
      const double d = divergence(range);
      if (d < least) {
        least = d;
        best = range;
      }
    }
    return best;
  }
};

}  // namespace

void register_entropy(Registry<ObserverKind>& kinds) {
  kinds.add("entropy",
            {.summary = "least Kullback-Leibler divergence", .options = {bins_option()}, .make = make_of<Entropy>()});
}

}  // namespace kaon
