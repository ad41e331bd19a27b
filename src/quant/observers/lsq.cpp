#include <algorithm>
#include <cfloat>
#include <cmath>

#include "numerics/moments.h"
#include "quant/observer.h"
#include "quant/observer_range.h"

namespace kaon {

namespace {

/// The scale that learned step sizes start from: 2 · mean |x| / √q_max (Esser et al., "Learned Step Size
/// Quantization").
class Lsq : public Observer {
 public:
  using Observer::Observer;

  void update(FloatView values) override {
    seen_.update(values);
    float block[kBlock];
    for (int64_t i = 0; i < values.size; i += kBlock) {
      const int64_t count = std::min(kBlock, values.size - i);
      const float* loaded = load_floats(values, i, count, block);
      std::transform(loaded, loaded + count, block, [](float x) { return std::fabs(x); });
      magnitudes_.update(std::span<const float>(block, static_cast<size_t>(count)));
    }
  }
  Range seen() const override { return seen_.range(); }
  Range range() const override {
    const Range all = with_zero(seen());
    return all.min == all.max ? all : intersection(representable(spec(), scale()), all);
  }
  ScaleZero scale() const override {
    const Format& f = format(spec().format);
    const Range all = with_zero(seen());
    if (is_cast(f) || all.min == all.max) return Observer::scale();
    const Range codes = representable(spec(), {1, with_scale(spec(), 1, all).zero_point});
    const double q_max = spec().symmetric ? codes.max : std::max(codes.max, -codes.min);
    const double wanted = std::clamp<double>(2 * magnitudes_.mean / std::sqrt(q_max), FLT_MIN, FLT_MAX);
    return with_scale(spec(), round_scale(static_cast<float>(wanted), spec().scale_type), all);
  }

 private:
  SeenRange seen_;
  Moments magnitudes_;
};

}  // namespace

void register_lsq(Registry<ObserverKind>& kinds) {
  kinds.add("lsq", {.summary = "2 mean |x| / sqrt(q_max), where learning a scale starts",
                    .options = {},
                    .make = [](const TensorSpec& spec, const auto&) { return std::make_unique<Lsq>(spec); }});
}

}  // namespace kaon
