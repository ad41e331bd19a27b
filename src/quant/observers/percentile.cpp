#include <algorithm>
#include <cmath>

#include "quant/observer_histogram.h"

namespace kaon {

namespace {

/// Leaves out the largest magnitudes, on whichever side of 0 they are. As in ONNX Runtime, the bound is the lower end
/// of the bin that holds the percentile; 100 covers everything.
class Percentile : public HistogramObserver {
 public:
  Percentile(const TensorSpec& spec, const std::map<std::string, double>& options)
      : HistogramObserver(spec, options), share_(options.at("percentile") / 100) {}

 protected:
  Range choose(Range all) const override {
    if (share_ == 1) return all;
    const double width = histogram().absmax() / static_cast<double>(histogram().bins());
    const double bin = std::ceil(histogram().absolute_quantile(share_) / width) - 1;
    const auto bound = static_cast<float>(std::max(bin, 1.0) * width);
    return {-bound, bound};
  }

 private:
  double share_;  // of the values
};

}  // namespace

void register_percentile(Registry<ObserverKind>& kinds) {
  kinds.add("percentile", {.summary = "all but the largest magnitudes",
                           .options = {{.name = "percentile",
                                        .value = 99.999,
                                        .min = 50,
                                        .max = 100,
                                        .help = "percentage of the values that is covered"},
                                       bins_option()},
                           .make = make_of<Percentile>()});
}

}  // namespace kaon
