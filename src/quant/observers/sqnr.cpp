#include "quant/observer_error.h"
#include "quant/observer_histogram.h"

namespace kaon {

namespace {

/// As mse, but large values are worth more than their error says: clipping costs extra.
class Sqnr : public HistogramObserver {
 public:
  Sqnr(const TensorSpec& spec, const std::map<std::string, double>& options)
      : HistogramObserver(spec, options), clip_penalty_(options.at("clip_penalty")) {}

 protected:
  Range choose(Range all) const override {
    return least_error_range(ErrorModel(histogram(), spec(), clip_penalty_), all);
  }

 private:
  double clip_penalty_;
};

}  // namespace

void register_sqnr(Registry<ObserverKind>& kinds) {
  kinds.add("sqnr", {.summary = "least squared error, clipping weighted more",
                     .options = {{.name = "clip_penalty",
                                  .value = 3,
                                  .min = 0.01,
                                  .max = 1000,
                                  .help = "weight of the error that comes from clipping"},
                                 bins_option()},
                     .make = make_of<Sqnr>()});
}

}  // namespace kaon
