#include "quant/schemes.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "quant/algorithm.h"

namespace kaon {
namespace {

Spec integer(const char* format, Granularity granularity, bool symmetric, int64_t group = 32) {
  Spec spec;
  spec.format = format;
  spec.granularity = granularity;
  spec.symmetric = symmetric;
  spec.group_size = group;
  return spec;
}

Spec plain(const char* format, Granularity granularity = Granularity::PerTensor) {
  return integer(format, granularity, true);
}

Spec dynamic(Spec spec) {
  spec.dynamic = true;
  return spec;
}

LayerRule weight_only(Spec weight) {
  LayerRule rule;
  rule.weight = std::move(weight);
  return rule;
}

LayerRule inputs_too(Spec weight, Spec input) {
  LayerRule rule = weight_only(std::move(weight));
  rule.input = std::move(input);
  return rule;
}

LayerRule everything(Spec weight, const Spec& activation) {
  LayerRule rule = inputs_too(std::move(weight), activation);
  rule.output = activation;
  rule.bias = plain("int32");
  return rule;
}

Registry<Scheme> all_schemes() {
  using enum Granularity;
  Registry<Scheme> table("scheme");
  const auto add = [&](const char* name, const char* summary, LayerRule rule) {
    table.add(name, Scheme{name, summary, std::move(rule)});
  };
  const Spec u8 = integer("uint8", PerTensor, false);
  add("w8", "8-bit weights, one scale a tensor", weight_only(plain("int8")));
  add("w8c", "8-bit weights, one scale a channel", weight_only(plain("int8", PerChannel)));
  add("w4g32", "4-bit weights in groups of 32", weight_only(integer("uint4", PerGroup, false, 32)));
  add("w4g128", "4-bit weights in groups of 128", weight_only(integer("uint4", PerGroup, false, 128)));
  add("w4g32s", "4-bit weights in groups of 32, no zero points", weight_only(integer("int4", PerGroup, true, 32)));
  add("w4g128s", "4-bit weights in groups of 128, no zero points", weight_only(integer("int4", PerGroup, true, 128)));
  add("w4c", "4-bit weights, one scale a channel", weight_only(plain("int4", PerChannel)));
  add("w8a8", "all 8-bit integers, one scale a tensor", everything(plain("int8"), u8));
  add("w8a8c", "all 8-bit integers, weights with one scale a channel", everything(plain("int8", PerChannel), u8));
  add("w8a8d", "8-bit weights, inputs quantized as they come", inputs_too(plain("int8"), dynamic(u8)));
  add("w8a8dc", "8-bit weights with one scale a channel, inputs quantized as they come",
      inputs_too(plain("int8", PerChannel), dynamic(u8)));
  add("a16w8", "8-bit weights, 16-bit activations",
      everything(plain("int8", PerChannel), integer("uint16", PerTensor, false)));
  add("fp8", "8-bit floats, weights and inputs", inputs_too(plain("fp8_e4m3"), plain("fp8_e4m3")));
  add("fp8d", "8-bit floats, inputs scaled row by row as they come",
      inputs_too(plain("fp8_e4m3"), dynamic(plain("fp8_e4m3", PerToken))));
  const std::pair<const char*, const char*> blocks[] = {{"mxfp8", "mxfp8_e4m3"}, {"mxfp6", "mxfp6_e2m3"},
                                                        {"mxfp4", "mxfp4"},      {"mxint8", "mxint8"},
                                                        {"nvfp4", "nvfp4"},      {"bfp16", "bfp16"}};
  for (const auto& [name, block] : blocks) {
    add(name, "blocks that share a scale, weights and inputs", inputs_too(plain(block), dynamic(plain(block))));
  }
  add("fp16", "weights stored in 16 bits", weight_only(plain("float16")));
  add("bf16", "weights stored in 16 bits, the range of float32", weight_only(plain("bfloat16")));
  return table;
}

/// Those slots of all rules that hold a spec.
template <typename Edit>
void edit_slots(Config& config, std::initializer_list<Slot> slots, const Edit& edit) {
  const auto in_rule = [&](LayerRule& rule) {
    for (const Slot slot : slots) {
      if (rule.at(slot).spec) edit(rule.at(slot));
    }
  };
  in_rule(config.global);
  for (auto& [type, rule] : config.by_type) in_rule(rule);
  for (auto& [name, rule] : config.by_name) in_rule(rule);
}

bool says(const SlotRule& slot, const char* key) { return slot.keys.empty() || slot.keys.contains(key); }

bool says_eight_bit_integer(const SlotRule& slot) {
  const Format& f = format(slot.spec->format);
  return says(slot, "format") && f.kind == FormatKind::Integer && f.bits == 8;
}

bool is_calibrated(const SlotRule& rule) {
  return rule.spec && !rule.spec->dynamic && learns_scales(format(rule.spec->format));
}

/// Whether a slot may end up with a range to learn, whichever rules meet in a layer.
bool may_be_calibrated(const Config& config, Slot slot) {
  std::set<std::pair<bool, bool>> states;  // has scales to learn, is dynamic
  bool may_be_float = !config.global.at(slot).spec;
  const auto add = [&](const LayerRule& rule) {
    const SlotRule& at = rule.at(slot);
    may_be_float = may_be_float || (at.given && !at.spec);
    if (!at.spec) return;
    std::set<std::pair<bool, bool>> more;
    const bool whole = at.keys.empty() || (may_be_float && says(at, "format"));
    if (whole) more.emplace(learns_scales(format(at.spec->format)), at.spec->dynamic);
    for (const auto& [scales, dynamic] : states) {
      more.emplace(says(at, "format") ? learns_scales(format(at.spec->format)) : scales,
                   says(at, "dynamic") ? at.spec->dynamic : dynamic);
    }
    states.merge(more);
  };
  add(config.global);
  for (const auto& [type, rule] : config.by_type) add(rule);
  for (const auto& [name, rule] : config.by_name) add(rule);
  return states.contains({true, false});
}

}  // namespace

const Registry<Scheme>& schemes() {
  static const Registry<Scheme> table = all_schemes();
  return table;
}

Config scheme_config(const std::string& name) {
  if (schemes().find(name) == nullptr && formats().find(name) != nullptr) {
    std::vector<std::string> using_it;
    for (const auto& [known, scheme] : schemes().items()) {
      if (scheme.rule.weight.spec->format == name) using_it.push_back(known);
    }
    fail(ErrorCode::InvalidInput, name, "is a number format, not a scheme; {}",
         using_it.empty() ? std::string("no scheme has such weights")
                          : fmt::format("schemes with such weights are {}", fmt::join(using_it, ", ")));
  }
  Config config;
  config.scheme = name;
  config.global = schemes().get(name).rule;
  return config;
}

Strategy strategy_of(const LayerRule& rule) {
  if (!rule.input.spec && !rule.output.spec) return Strategy::WeightOnly;
  return is_calibrated(rule.input) || is_calibrated(rule.output) ? Strategy::Static : Strategy::Dynamic;
}

bool needs_calibration(const Config& config) {
  const auto wants_data = [](const AlgorithmConfig& algorithm) { return algorithms().get(algorithm.name).needs_data; };
  return std::ranges::any_of(config.algorithms, wants_data) || may_be_calibrated(config, Slot::Input) ||
         may_be_calibrated(config, Slot::Output);
}

void set_layout(Config& config, Layout layout) {
  bool applied = false;
  edit_slots(config, {Slot::Input, Slot::Output}, [&](SlotRule& slot) {
    if (!says_eight_bit_integer(slot) || slot.spec->dynamic) return;
    slot.spec->format = layout == Layout::S8S8 ? "int8" : "uint8";
    applied = true;
  });
  if (!applied) {
    fail(ErrorCode::InvalidConfig, "layout", "'{}' is for static 8-bit integer schemes (w8a8, w8a8c)",
         enum_name(layout));
  }
  edit_slots(config, {Slot::Weight}, [&](SlotRule& slot) {
    if (says_eight_bit_integer(slot)) slot.spec->format = layout == Layout::U8U8 ? "uint8" : "int8";
  });
}

void set_observer(Config& config, const ObserverConfig& observer) {
  edit_slots(config, {Slot::Input, Slot::Output}, [&](SlotRule& slot) {
    slot.spec->observer = observer;
    if (!slot.keys.empty()) slot.keys.insert("observer");
  });
}

}  // namespace kaon
