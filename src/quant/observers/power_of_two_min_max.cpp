#include "quant/observer.h"
#include "quant/observer_range.h"

namespace kaon {

namespace {

TensorSpec with_power_of_two(TensorSpec spec) {
  spec.scale_type = ScaleType::PowerOfTwo;
  return spec;
}

/// Covers everything seen, with the smallest scale 2^n that can.
class PowerOfTwoMinMax : public Observer {
 public:
  explicit PowerOfTwoMinMax(const TensorSpec& spec) : Observer(with_power_of_two(spec)) {}

  void update(FloatView values) override { seen_.update(values); }
  Range range() const override { return with_zero(seen_.range()); }
  Range seen() const override { return seen_.range(); }

 private:
  SeenRange seen_;
};

}  // namespace

void register_power_of_two_min_max(Registry<ObserverKind>& kinds) {
  kinds.add("power_of_two_min_max",
            {.summary = "everything seen; the scale is a power of two",
             .options = {},
             .make = [](const TensorSpec& spec, const auto&) { return std::make_unique<PowerOfTwoMinMax>(spec); },
             .params = [](FloatView in, std::span<const int64_t> shape,
                          const TensorSpec& spec) { return choose_params(in, shape, with_power_of_two(spec)); }});
}

}  // namespace kaon
