#include "quant/observer.h"

namespace kaon {

namespace {

/// min_max with the smallest scale 2^n that covers the range.
TensorSpec with_power_of_two(TensorSpec spec) {
  spec.scale_type = ScaleType::PowerOfTwo;
  return spec;
}

}  // namespace

void register_power_of_two_min_max(Registry<ObserverKind>& kinds) {
  kinds.add(
      "power_of_two_min_max",
      {.summary = "everything seen; the scale is a power of two",
       .options = {},
       .make = [](const TensorSpec& spec,
                  const auto& options) { return observers().get("min_max").make(with_power_of_two(spec), options); },
       .params = [](FloatView in, std::span<const int64_t> shape,
                    const TensorSpec& spec) { return choose_params(in, shape, with_power_of_two(spec)); }});
}

}  // namespace kaon
