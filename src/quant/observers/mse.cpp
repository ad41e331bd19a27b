#include "quant/observer_error.h"
#include "quant/observer_histogram.h"

namespace kaon {

namespace {

class Mse : public HistogramObserver {
 public:
  using HistogramObserver::HistogramObserver;

 protected:
  Range choose(Range all) const override { return least_error_range(ErrorModel(histogram(), spec()), all); }
};

}  // namespace

void register_mse(Registry<ObserverKind>& kinds) {
  kinds.add("mse", {.summary = "least mean squared error", .options = {bins_option()}, .make = make_of<Mse>()});
}

}  // namespace kaon
