#include "quant/observer.h"
#include "quant/observer_range.h"

namespace kaon {

namespace {

/// Minimum and maximum of each batch, averaged with weights that fade; the first batch sets them.
class MovingAverage : public Observer {
 public:
  MovingAverage(TensorSpec spec, double momentum) : Observer(std::move(spec)), momentum_(momentum) {}

  void update(FloatView values) override { batch_.update(values); }

  void end_batch() override {
    if (batch_.empty()) return;
    const Range range = batch_.range();
    low_ = seen_.empty() ? range.min : low_ + momentum_ * (range.min - low_);
    high_ = seen_.empty() ? range.max : high_ + momentum_ * (range.max - high_);
    const float extremes[] = {range.min, range.max};
    seen_.update(std::span<const float>(extremes));
    batch_ = {};
  }
  Range range() const override { return with_zero({static_cast<float>(low_), static_cast<float>(high_)}); }
  Range seen() const override { return seen_.range(); }

 private:
  double momentum_;
  double low_ = 0;
  double high_ = 0;
  SeenRange batch_;
  SeenRange seen_;
};

}  // namespace

void register_moving_average(Registry<ObserverKind>& kinds) {
  kinds.add("moving_average",
            {.summary = "the range of each batch, averaged with weights that fade",
             .options = {{.name = "momentum",
                          .value = 0.01,
                          .min = 1e-6,
                          .max = 1,
                          .help = "share of the way that the range moves towards that of a batch"}},
             .make = [](const TensorSpec& spec,
                        const auto& options) { return std::make_unique<MovingAverage>(spec, options.at("momentum")); },
             // One update only: the range itself.
             .params = [](FloatView in, std::span<const int64_t> shape,
                          const TensorSpec& spec) { return choose_params(in, shape, spec); }});
}

}  // namespace kaon
