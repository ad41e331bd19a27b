#include "quant/config.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/json_text.h"
#include "base/error.h"
#include "base/keys.h"
#include "quant/algorithm.h"
#include "quant/observer.h"
#include "quant/schemes.h"

namespace kaon {
namespace {

using Json = nlohmann::ordered_json;

constexpr Slot kSlots[] = {Slot::Input, Slot::Output, Slot::Weight, Slot::Bias};

std::string at_key(const std::string& where, const std::string& key) { return where + ": " + key; }

void expect_object(const Json& value, const std::vector<std::string>& known, const std::string& where) {
  if (!value.is_object()) fail(ErrorCode::InvalidConfig, where, "must be an object, is {}", value.type_name());
  for (const auto& [key, item] : value.items()) {
    if (!known.empty()) expect_known_key(key, known, where);
  }
}

std::string get_string(const Json& value, const std::string& where) {
  if (!value.is_string()) fail(ErrorCode::InvalidConfig, where, "must be a string, is {}", value.dump());
  return value.get<std::string>();
}

std::vector<std::string> get_strings(const Json& value, const std::string& where) {
  if (!value.is_array()) fail(ErrorCode::InvalidConfig, where, "must be a list of strings, is {}", value.dump());
  std::vector<std::string> items;
  for (const Json& item : value) items.push_back(get_string(item, where));
  return items;
}

bool get_bool(const Json& value, const std::string& where) {
  if (!value.is_boolean()) fail(ErrorCode::InvalidConfig, where, "must be true or false, is {}", value.dump());
  return value.get<bool>();
}

int64_t get_int(const Json& value, int64_t min, const std::string& where) {
  if (!value.is_number_integer() || value.get<int64_t>() < min) {
    fail(ErrorCode::InvalidConfig, where, "must be an integer of at least {}, is {}", min, value.dump());
  }
  return value.get<int64_t>();
}

/// A name, or an object with a name and options: an ObserverConfig or an AlgorithmConfig.
template <typename Named>
Named parse_named(const Json& value, const std::string& what, const std::string& where) {
  Named config;
  if (value.is_string()) {
    config.name = value.get<std::string>();
    return config;
  }
  if (!value.is_object() || !value.contains("name")) {
    fail(ErrorCode::InvalidConfig, where, "{} is a name, or an object with a name and options; this is {}", what,
         value.dump());
  }
  for (const auto& [key, item] : value.items()) {
    if (key == "name") {
      config.name = get_string(item, at_key(where, key));
    } else if (item.is_number() || item.is_boolean()) {
      config.options[key] =
          item.is_boolean() ? static_cast<double>(item.template get<bool>()) : item.template get<double>();
    } else {
      fail(ErrorCode::InvalidConfig, at_key(where, key), "must be a number, true or false, is {}", item.dump());
    }
  }
  return config;
}

ObserverConfig parse_observer(const Json& value, const std::string& where) {
  const auto config = parse_named<ObserverConfig>(value, "an observer", where);
  make_observer(config, TensorSpec{}, where);  // so that a wrong name or option is found here
  return config;
}

Spec parse_spec(const Json& value, const std::string& where) {
  static const std::vector<std::string> known = {"format",     "granularity", "axis",        "group_size", "symmetric",
                                                 "scale_type", "rounding",    "block_scale", "dynamic",    "observer"};
  expect_object(value, known, where);
  Spec spec;
  if (!value.contains("format")) fail(ErrorCode::InvalidConfig, where, "names no format; `kaon formats` lists them");
  for (const auto& [key, item] : value.items()) {
    const std::string here = at_key(where, key);
    if (key == "format") {
      spec.format = get_string(item, here);
      if (formats().find(spec.format) == nullptr) {
        const std::string near = nearest(spec.format, formats().names());
        fail(ErrorCode::InvalidConfig, here, "unknown format '{}'; {}", spec.format,
             near.empty() ? "`kaon formats` lists them" : "did you mean '" + near + "'?");
      }
    } else if (key == "granularity") {
      spec.granularity = enum_value<Granularity>(get_string(item, here), here);
    } else if (key == "axis") {
      if (!item.is_null()) spec.axis = get_int(item, -8, here);
    } else if (key == "group_size") {
      spec.group_size = get_int(item, 1, here);
    } else if (key == "symmetric") {
      spec.symmetric = get_bool(item, here);
    } else if (key == "scale_type") {
      spec.scale_type = enum_value<ScaleType>(get_string(item, here), here);
    } else if (key == "rounding") {
      spec.rounding = enum_value<Rounding>(get_string(item, here), here);
    } else if (key == "block_scale") {
      spec.block_scale = enum_value<BlockScaleMode>(get_string(item, here), here);
    } else if (key == "dynamic") {
      spec.dynamic = get_bool(item, here);
    } else {
      spec.observer = parse_observer(item, here);
    }
  }
  return spec;
}

LayerRule parse_rule(const Json& value, const std::string& where) {
  expect_object(value, {"input", "output", "weight", "bias"}, where);
  LayerRule rule;
  for (const Slot slot : kSlots) {
    const std::string key(name_of(slot));
    if (!value.contains(key)) continue;
    rule.at(slot) =
        value[key].is_null() ? SlotRule::stays_float() : SlotRule(parse_spec(value[key], at_key(where, key)));
  }
  return rule;
}

std::vector<std::pair<std::string, LayerRule>> parse_rules(const Json& value, const std::string& where) {
  expect_object(value, {}, where);
  std::vector<std::pair<std::string, LayerRule>> rules;
  for (const auto& [key, item] : value.items()) rules.emplace_back(key, parse_rule(item, at_key(where, key)));
  return rules;
}

template <typename Named>
Json named_to_json(const Named& config) {
  Json json = {{"name", config.name}};
  for (const auto& [key, value] : config.options) json[key] = value;
  return json;
}

Json to_json(const LayerRule& rule) {
  Json json = Json::object();
  for (const Slot slot : kSlots) {
    const SlotRule& at = rule.at(slot);
    if (at.given) json[std::string(name_of(slot))] = at.spec ? to_json(*at.spec) : Json(nullptr);
  }
  return json;
}

Json to_json(const std::vector<std::pair<std::string, LayerRule>>& rules) {
  Json json = Json::object();
  for (const auto& [key, rule] : rules) json[key] = to_json(rule);
  return json;
}

}  // namespace

TensorSpec Spec::tensor_spec(int64_t usual_axis) const {
  TensorSpec spec;
  spec.format = format;
  spec.granularity = granularity;
  spec.axis = axis.value_or(usual_axis);
  spec.group_size = group_size;
  spec.symmetric = symmetric;
  spec.scale_type = scale_type;
  spec.rounding = rounding;
  spec.block_scale = block_scale;
  return spec;
}

const SlotRule& LayerRule::at(Slot slot) const {
  switch (slot) {
    case Slot::Input: return input;
    case Slot::Weight: return weight;
    case Slot::Bias: return bias;
    case Slot::Output: break;
  }
  return output;
}

SlotRule& LayerRule::at(Slot slot) { return const_cast<SlotRule&>(std::as_const(*this).at(slot)); }

Config parse_config(const Json& document, const std::string& where) {
  expect_object(document, {"scheme", "global", "by_type", "by_name", "exclude", "algorithms"}, where);
  Config config;
  if (document.contains("scheme")) {
    const std::string here = at_key(where, "scheme");
    const std::string name = get_string(document["scheme"], here);
    if (schemes().find(name) == nullptr) {
      const std::string near = nearest(name, schemes().names());
      fail(ErrorCode::InvalidConfig, here, "unknown scheme '{}'; {}", name,
           near.empty() ? "`kaon schemes` lists them" : "did you mean '" + near + "'?");
    }
    config = scheme_config(name);
  }
  if (document.contains("global")) {
    const LayerRule rule = parse_rule(document["global"], at_key(where, "global"));
    for (const Slot slot : kSlots) {
      if (rule.at(slot).given) config.global.at(slot) = rule.at(slot);
    }
  }
  if (document.contains("by_type")) config.by_type = parse_rules(document["by_type"], at_key(where, "by_type"));
  if (document.contains("by_name")) config.by_name = parse_rules(document["by_name"], at_key(where, "by_name"));
  if (document.contains("exclude")) config.exclude = get_strings(document["exclude"], at_key(where, "exclude"));
  if (document.contains("algorithms")) {
    const std::string here = at_key(where, "algorithms");
    if (!document["algorithms"].is_array()) {
      fail(ErrorCode::InvalidConfig, here, "must be a list, is {}", document["algorithms"].dump());
    }
    for (const Json& item : document["algorithms"]) {
      config.algorithms.push_back(parse_named<AlgorithmConfig>(item, "an algorithm", here));
      check_algorithm(config.algorithms.back(), here);
    }
  }
  return config;
}

Config read_config(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail(ErrorCode::Io, path, "cannot be read");
  Json document;
  try {
    document = Json::parse(file, bounded_depth(path));
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorCode::CorruptFile, path, "is not JSON: {}", error.what());
  }
  return parse_config(document, path);
}

Json to_json(const Spec& spec) {
  Json json;
  json["format"] = spec.format;
  json["granularity"] = enum_name(spec.granularity);
  if (spec.axis) json["axis"] = *spec.axis;
  if (spec.granularity == Granularity::PerGroup || spec.granularity == Granularity::PerBlock) {
    json["group_size"] = spec.group_size;
  }
  json["symmetric"] = spec.symmetric;
  json["scale_type"] = enum_name(spec.scale_type);
  json["rounding"] = enum_name(spec.rounding);
  if (format(spec.format).kind == FormatKind::Block) json["block_scale"] = enum_name(spec.block_scale);
  json["dynamic"] = spec.dynamic;
  json["observer"] = named_to_json(spec.observer);
  return json;
}

Json to_json(const Config& config) {
  Json json;
  if (!config.scheme.empty()) json["scheme"] = config.scheme;
  json["global"] = to_json(config.global);
  if (!config.by_type.empty()) json["by_type"] = to_json(config.by_type);
  if (!config.by_name.empty()) json["by_name"] = to_json(config.by_name);
  if (!config.exclude.empty()) json["exclude"] = config.exclude;
  for (const AlgorithmConfig& algorithm : config.algorithms) json["algorithms"].push_back(named_to_json(algorithm));
  return json;
}

std::string describe(const Spec& spec) {
  const Format& f = format(spec.format);
  std::string text = spec.format;
  if (is_cast(f)) return text;
  if (f.kind == FormatKind::Block) {
    text += fmt::format(" blocks of {}", f.block);
  } else {
    text += " ";
    text += enum_name(spec.granularity);
    const bool grouped = spec.granularity == Granularity::PerGroup || spec.granularity == Granularity::PerBlock;
    if (grouped) text += fmt::format(" {}", spec.group_size);
    if (f.kind == FormatKind::Integer) text += spec.symmetric ? " symmetric" : " asymmetric";
  }
  if (spec.dynamic) text += " dynamic";
  return text;
}

}  // namespace kaon
