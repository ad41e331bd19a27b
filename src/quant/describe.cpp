#include "quant/describe.h"

#include <algorithm>

#include "base/error.h"

namespace kaon {
namespace {

/// "0.0123", or "0.0012 … 0.0456 (64)" where there are several.
template <typename T>
std::string spread(const std::vector<T>& values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  if (*low == *high) return fmt::format("{:.6g}", static_cast<double>(*low));
  return fmt::format("{:.4g} … {:.4g} ({})", static_cast<double>(*low), static_cast<double>(*high), values.size());
}

std::string slot_line(const Quantizer& quantizer, Slot slot) {
  const bool shared = quantizer.serves.size() > 1;
  return fmt::format("  ({}) #{}{}: {}\n", name_of(slot), quantizer.id, shared ? " shared" : "", describe(quantizer));
}

}  // namespace

std::string describe(const Quantizer& quantizer) {
  const TensorSpec& spec = quantizer.spec;
  const Format& f = format(spec.format);
  std::string text = "FakeQuantize " + spec.format;
  if (f.kind == FormatKind::Block) {
    text += fmt::format(", blocks of {} on axis {}", f.block, spec.axis);
  } else if (!is_cast(f)) {
    text += fmt::format(", {}", enum_name(spec.granularity));
    if (spec.granularity == Granularity::PerChannel) text += fmt::format(" on axis {}", spec.axis);
    if (spec.granularity == Granularity::PerGroup) text += fmt::format(" of {} on axis {}", spec.group_size, spec.axis);
    if (spec.granularity == Granularity::PerBlock) text += fmt::format(" of {0}×{0}", spec.group_size);
    if (f.kind == FormatKind::Integer) text += spec.symmetric ? ", symmetric" : ", asymmetric";
  }
  if (quantizer.dynamic) return text + ", dynamic";
  if (!is_cast(f) && !quantizer.params.scale.empty()) {
    text += ", scale " + spread(quantizer.params.scale);
    if (!quantizer.params.zero_point.empty()) text += ", zero point " + spread(quantizer.params.zero_point);
  }
  return text + fmt::format(", seen {:.4g} … {:.4g}", quantizer.observed.min, quantizer.observed.max);
}

std::string describe(const QuantizedModel& quantized) {
  std::string text;
  for (const Layer& layer : quantized.layers) {
    std::string slots;
    for (const Slot slot : {Slot::Input, Slot::Weight, Slot::Bias, Slot::Output}) {
      const Quantizer* quantizer = quantized.find(layer.name, slot);
      if (quantizer != nullptr) slots += slot_line(*quantizer, slot);
    }
    text +=
        fmt::format("{}: {}{} {}\n", layer.name, slots.empty() ? "" : "Quant", layer.op, to_string(layer.weight_shape));
    text += slots;
  }
  // Operators between the layers.
  for (const Quantizer& quantizer : quantized.quantizers) {
    const Served& served = quantizer.serves.front();
    if (std::ranges::find(quantized.layers, served.layer, &Layer::name) != quantized.layers.end()) continue;
    text += served.layer + ":\n" + slot_line(quantizer, served.slot);
  }
  for (const Skipped& skipped : quantized.skipped) text += fmt::format("{}: {}\n", skipped.layer, skipped.reason);
  return text;
}

}  // namespace kaon
