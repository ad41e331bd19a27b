#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "quant/observer_error.h"
#include "quant/observer_histogram.h"

namespace kaon {

namespace {

class Distribution {
 public:
  explicit Distribution(const Histogram& histogram) {
    below_.push_back(0);
    for (int64_t i = 0; i < std::ssize(histogram.counts()); ++i) {
      const auto count = static_cast<double>(histogram.counts()[static_cast<size_t>(i)]);
      if (count == 0) continue;
      const int64_t bin = histogram.first_bin() + i;
      centres_.push_back(histogram.edge(i) + histogram.width() / 2);
      at_zero_.push_back(bin == 0 || bin == -1);
      counts_.push_back(count);
      logs_.push_back(count * std::log(count));
      below_.push_back(below_.back() + count);
    }
  }

  /// KL(p || q) in nats: p has what `range` clips in its outermost bins, q has not, which is the price of clipping; and
  /// in q the bins between two rounding points are equal, which is the price of rounding.
  double divergence(Range range, const ErrorModel& model, ScaleZero params) const {
    const auto first_above = [&](double bound) {
      return static_cast<size_t>(std::ranges::lower_bound(centres_, bound) - centres_.begin());
    };
    const size_t begin = first_above(range.min);
    const size_t end = first_above(range.max);
    if (begin == end) return std::numeric_limits<double>::infinity();
    const double total = below_.back();
    const double clipped_low = below_[begin];
    const double clipped_high = total - below_[end];
    const std::vector<double> levels = model.quantized(std::span(centres_).subspan(begin, end - begin), params);

    double sum = 0;
    for (size_t i = begin; i < end;) {
      size_t stop = i;
      double p_logs = 0;
      do {
        const double clipped = (stop == begin ? clipped_low : 0) + (stop + 1 == end ? clipped_high : 0);
        const double p = counts_[stop] + clipped;
        p_logs += clipped == 0 ? logs_[stop] : p * std::log(p);
        ++stop;
      } while (stop < end && levels[stop - begin] == levels[i - begin] && !at_zero_[stop] && !at_zero_[stop - 1]);
      const double q = below_[stop] - below_[i];
      const double p = q + (i == begin ? clipped_low : 0) + (stop == end ? clipped_high : 0);
      sum += p_logs - p * std::log(q / static_cast<double>(stop - i));
      i = stop;
    }
    return sum / total + std::log((total - clipped_low - clipped_high) / total);
  }

 private:
  // Of the bins that hold something.
  std::vector<double> centres_;
  std::vector<bool> at_zero_;  // whether 0 is an edge of the bin
  std::vector<double> counts_;
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
    double least = INFINITY;
    for (int k = kThresholds; k > 0; --k) {
      const auto bound = static_cast<float>(amax * k / kThresholds);
      const Range range{std::max(all.min, -bound), std::min(all.max, bound)};
      const double e = error(range);
      if (e > kHopeless * most) break;
      if (e > most) continue;
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
