#include "quant/observer_error.h"
#include "quant/observer_histogram.h"

namespace kaon {

namespace {

class PowerOfTwoMse : public HistogramObserver {
 public:
  using HistogramObserver::HistogramObserver;

  ScaleZero scale() const override {
    const Range all = with_zero(seen());
    if (is_cast(format(spec().format)) || all.min == all.max) return Observer::scale();
    return least_error_power_of_two(ErrorModel(histogram(), spec()), all);
  }

 protected:
  Range choose(Range) const override { return representable(spec(), scale()); }
};

}  // namespace

void register_power_of_two_mse(Registry<ObserverKind>& kinds) {
  kinds.add("power_of_two_mse", {.summary = "least mean squared error; the scale is a power of two",
                                 .options = {bins_option()},
                                 .make = make_of<PowerOfTwoMse>()});
}

}  // namespace kaon
