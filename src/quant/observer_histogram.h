#pragma once
#include <utility>

#include "numerics/histogram.h"
#include "quant/observer.h"
#include "quant/observer_range.h"

namespace kaon {

/// What the observers that keep a histogram have in common: range() chooses among the bins.
class HistogramObserver : public Observer {
 public:
  HistogramObserver(TensorSpec spec, const std::map<std::string, double>& options)
      : Observer(std::move(spec)), histogram_(static_cast<int64_t>(options.at("bins"))) {}

  void update(FloatView values) override { histogram_.update(values); }
  Range seen() const override { return histogram_.count() == 0 ? Range{} : Range{histogram_.min(), histogram_.max()}; }
  Range range() const override {
    const Range all = with_zero(seen());
    return all.min == all.max ? all : with_zero(intersection(choose(all), all));
  }

  const Histogram& histogram() const { return histogram_; }

 protected:
  /// The range to cover; `all` is what was seen, widened to hold 0, and not empty.
  virtual Range choose(Range all) const = 0;

 private:
  Histogram histogram_;
};

inline Option bins_option() {
  return {.name = "bins", .value = 2048, .min = 16, .max = 65536, .help = "bins of the histogram", .whole = true};
}

/// The `make` of a kind whose observers are of class T.
template <class T>
auto make_of() {
  return [](const TensorSpec& spec, const std::map<std::string, double>& options) {
    return std::make_unique<T>(spec, options);
  };
}

}  // namespace kaon
