#include <nlohmann/json.hpp>

#include "export/export.h"

namespace kaon {

namespace {

nlohmann::ordered_json to_json(const Quantizer& quantizer) {
  nlohmann::ordered_json slots = nlohmann::ordered_json::array();
  for (const Served& served : quantizer.serves) {
    slots.push_back({{"layer", served.layer}, {"slot", name_of(served.slot)}});
  }
  const TensorSpec& spec = quantizer.spec;
  nlohmann::ordered_json row = {{"id", quantizer.id},
                                {"tensor", quantizer.tensor},
                                {"slots", std::move(slots)},
                                {"format", spec.format},
                                {"granularity", enum_name(spec.granularity)},
                                {"axis", nullptr},
                                {"group_size", nullptr},
                                {"symmetric", spec.symmetric},
                                {"scale_type", enum_name(spec.scale_type)},
                                {"dynamic", quantizer.dynamic},
                                {"scale", quantizer.params.scale},
                                {"zero_point", quantizer.params.zero_point},
                                {"min", quantizer.observed.min},
                                {"max", quantizer.observed.max}};
  const bool blocks = has_own_scales(spec);
  const bool groups = spec.granularity == Granularity::PerGroup || spec.granularity == Granularity::PerBlock;
  if (blocks || spec.granularity == Granularity::PerChannel || spec.granularity == Granularity::PerGroup) {
    row["axis"] = spec.axis;
  }
  if (blocks) {
    row["group_size"] = format(spec.format).block;
  } else if (groups) {
    row["group_size"] = spec.group_size;
  }
  return row;
}

}  // namespace

nlohmann::ordered_json sidecar_json(const QuantizedModel& quantized, const Exported& exported) {
  nlohmann::ordered_json quantizers = nlohmann::ordered_json::array();
  for (const Quantizer& quantizer : quantized.quantizers) {
    if (quantizer.enabled) quantizers.push_back(to_json(quantizer));
  }
  nlohmann::ordered_json skipped = nlohmann::ordered_json::array();
  for (const Skipped& row : quantized.skipped) skipped.push_back(to_json(row));
  return {{"scheme", quantized.config.scheme},       {"opset", exported.model.opset()},
          {"ir_version", exported.model.ir_version}, {"quantizers", std::move(quantizers)},
          {"skipped", std::move(skipped)},           {"notes", exported.notes}};
}

}  // namespace kaon
