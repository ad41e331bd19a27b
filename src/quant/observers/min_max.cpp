#include "quant/observer.h"
#include "quant/observer_range.h"

namespace kaon {

namespace {

/// Covers everything seen.
class MinMax : public Observer {
 public:
  using Observer::Observer;

  void update(FloatView values) override { seen_.update(values); }
  Range range() const override { return with_zero(seen_.range()); }
  Range seen() const override { return seen_.range(); }

 private:
  SeenRange seen_;
};

}  // namespace

void register_min_max(Registry<ObserverKind>& kinds) {
  kinds.add("min_max", {.summary = "everything seen",
                        .options = {},
                        .make = [](const TensorSpec& spec, const auto&) { return std::make_unique<MinMax>(spec); },
                        .params = [](FloatView in, std::span<const int64_t> shape,
                                     const TensorSpec& spec) { return choose_params(in, shape, spec); }});
}

}  // namespace kaon
