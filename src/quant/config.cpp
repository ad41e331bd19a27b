#include "quant/config.h"

#include <fstream>
#include <iterator>

#include "base/error.h"
#include "base/json_text.h"
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
  if (!value.is_string()) fail(ErrorCode::InvalidConfig, where, "must be a string, is {}", json_text(value));
  return value.get<std::string>();
}

std::vector<std::string> get_strings(const Json& value, const std::string& where) {
  if (!value.is_array()) fail(ErrorCode::InvalidConfig, where, "must be a list of strings, is {}", json_text(value));
  std::vector<std::string> items;
  for (const Json& item : value) items.push_back(get_string(item, where));
  return items;
}

bool get_bool(const Json& value, const std::string& where) {
  if (!value.is_boolean()) fail(ErrorCode::InvalidConfig, where, "must be true or false, is {}", json_text(value));
  return value.get<bool>();
}

int64_t get_int(const Json& value, int64_t min, const std::string& where) {
  if (!value.is_number_integer() || value.get<int64_t>() < min) {
    fail(ErrorCode::InvalidConfig, where, "must be an integer of at least {}, is {}", min, json_text(value));
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
         json_text(value));
  }
  for (const auto& [key, item] : value.items()) {
    if (key == "name") {
      config.name = get_string(item, at_key(where, key));
    } else if (item.is_number() || item.is_boolean()) {
      config.options[key] =
          item.is_boolean() ? static_cast<double>(item.template get<bool>()) : item.template get<double>();
    } else {
      fail(ErrorCode::InvalidConfig, at_key(where, key), "must be a number, true or false, is {}", json_text(item));
    }
  }
  return config;
}

ObserverConfig parse_observer(const Json& value, const std::string& where) {
  auto config = parse_named<ObserverConfig>(value, "an observer", where);
  make_observer(config, TensorSpec{}, where);  // so that a wrong name or option is found here
  return config;
}

const std::vector<std::string>& spec_keys() {
  static const std::vector<std::string> keys = {"format",     "granularity", "axis",        "group_size", "symmetric",
                                                "scale_type", "rounding",    "block_scale", "dynamic",    "observer"};
  return keys;
}

/// Gives `spec` the value that `from` has at `key`.
void copy_key(const std::string& key, const Spec& from, Spec& spec) {
  if (key == "format") spec.format = from.format;
  if (key == "granularity") spec.granularity = from.granularity;
  if (key == "axis") spec.axis = from.axis;
  if (key == "group_size") spec.group_size = from.group_size;
  if (key == "symmetric") spec.symmetric = from.symmetric;
  if (key == "scale_type") spec.scale_type = from.scale_type;
  if (key == "rounding") spec.rounding = from.rounding;
  if (key == "block_scale") spec.block_scale = from.block_scale;
  if (key == "dynamic") spec.dynamic = from.dynamic;
  if (key == "observer") spec.observer = from.observer;
}

template <typename Named>
Json named_to_json(const Named& config) {
  Json json = {{"name", config.name}};
  for (const auto& [key, value] : config.options) json[key] = value;
  return json;
}

Json key_json(const std::string& key, const Spec& spec) {
  if (key == "format") return spec.format;
  if (key == "granularity") return enum_name(spec.granularity);
  if (key == "axis") return spec.axis ? Json(*spec.axis) : Json(nullptr);
  if (key == "group_size") return spec.group_size;
  if (key == "symmetric") return spec.symmetric;
  if (key == "scale_type") return enum_name(spec.scale_type);
  if (key == "rounding") return enum_name(spec.rounding);
  if (key == "block_scale") return enum_name(spec.block_scale);
  if (key == "dynamic") return spec.dynamic;
  return named_to_json(spec.observer);
}

bool has_groups(const Spec& spec) {
  return spec.granularity == Granularity::PerGroup || spec.granularity == Granularity::PerBlock;
}

/// Formats whose numbers have no scale that a granularity could share.
bool has_no_granularity(const Format& f) { return f.kind == FormatKind::Block || is_cast(f); }

Spec merged(const Spec& over, const std::set<std::string>& keys, Spec spec, const std::string& where) {
  const Granularity before = spec.granularity;
  for (const std::string& key : keys) copy_key(key, over, spec);
  const auto start_again = [&](const char* key) {
    if (!keys.contains(key)) copy_key(key, Spec{}, spec);
  };
  const Format& f = format(spec.format);
  if (has_no_granularity(f)) start_again("granularity");
  if (f.kind != FormatKind::Integer) start_again("symmetric");
  if (spec.granularity != before) {
    start_again("axis");
    start_again("group_size");
  }
  if (keys.contains("group_size") && (!has_groups(spec) || has_no_granularity(f))) {
    fail(ErrorCode::InvalidConfig, at_key(where, "group_size"), "{} has no groups; \"granularity\": \"per_group\" has",
         describe(spec));
  }
  return spec;
}

SlotRule parse_spec(const Json& value, const std::string& where) {
  expect_object(value, spec_keys(), where);
  if (value.empty()) fail(ErrorCode::InvalidConfig, where, "says nothing; null leaves a slot float");
  Spec spec;
  std::set<std::string> keys;
  for (const auto& [key, item] : value.items()) {
    const std::string here = at_key(where, key);
    keys.insert(key);
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
  SlotRule rule(std::move(spec));
  rule.keys = std::move(keys);
  return rule;
}

LayerRule parse_rule(const Json& value, const std::string& where) {
  expect_object(value, {"input", "output", "weight", "bias"}, where);
  LayerRule rule;
  for (const Slot slot : kSlots) {
    const std::string key(name_of(slot));
    if (!value.contains(key)) continue;
    rule.at(slot) = value[key].is_null() ? SlotRule::stays_float() : parse_spec(value[key], at_key(where, key));
  }
  return rule;
}

std::vector<std::pair<std::string, LayerRule>> parse_rules(const Json& value, const std::string& where) {
  expect_object(value, {}, where);
  std::vector<std::pair<std::string, LayerRule>> rules;
  for (const auto& [key, item] : value.items()) rules.emplace_back(key, parse_rule(item, at_key(where, key)));
  return rules;
}

Json to_json(const LayerRule& rule) {
  Json json = Json::object();
  for (const Slot slot : kSlots) {
    const SlotRule& at = rule.at(slot);
    if (!at.given) continue;
    Json& said = json[std::string(name_of(slot))];
    if (at.spec && at.keys.empty()) said = to_json(*at.spec);
    for (const std::string& key : at.keys) said[key] = key_json(key, *at.spec);
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

void merge(const LayerRule& over, LayerRule& rule, const std::string& where) {
  for (const Slot slot : kSlots) {
    const SlotRule& said = over.at(slot);
    if (!said.given) continue;
    SlotRule& at = rule.at(slot);
    if (!said.spec || said.keys.empty()) {
      at = said;
      continue;
    }
    const std::string here = at_key(where, std::string(name_of(slot)));
    if (!at.spec && !said.keys.contains("format")) {
      fail(ErrorCode::InvalidConfig, here, "names no format, and no rule before it does; `kaon formats` lists them");
    }
    at = merged(*said.spec, said.keys, at.spec.value_or(Spec{}), here);
  }
}

Config parse_config(const Json& document, const std::string& where, Config base) {
  expect_object(document, {"scheme", "global", "by_type", "by_name", "exclude", "algorithms"}, where);
  Config config = std::move(base);
  if (document.contains("scheme")) {
    const std::string here = at_key(where, "scheme");
    const std::string name = get_string(document["scheme"], here);
    if (!(config == Config{})) {
      fail(ErrorCode::InvalidConfig, here, "'{}' cannot go on top of {}; leave one of them out", name,
           config.scheme.empty() ? "another config" : "the scheme '" + config.scheme + "'");
    }
    try {
      config = scheme_config(name);
    } catch (const Error& error) {
      throw Error(ErrorCode::InvalidConfig, error.what(), here);
    }
  }
  if (document.contains("global")) {
    const std::string here = at_key(where, "global");
    merge(parse_rule(document["global"], here), config.global, here);
  }
  const auto add = [](auto more, auto& all) {
    all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  };
  if (document.contains("by_type")) add(parse_rules(document["by_type"], at_key(where, "by_type")), config.by_type);
  if (document.contains("by_name")) add(parse_rules(document["by_name"], at_key(where, "by_name")), config.by_name);
  if (document.contains("exclude")) add(get_strings(document["exclude"], at_key(where, "exclude")), config.exclude);
  if (document.contains("algorithms")) {
    const std::string here = at_key(where, "algorithms");
    if (!document["algorithms"].is_array()) {
      fail(ErrorCode::InvalidConfig, here, "must be a list, is {}", json_text(document["algorithms"]));
    }
    for (const Json& item : document["algorithms"]) {
      config.algorithms.push_back(parse_named<AlgorithmConfig>(item, "an algorithm", here));
      check_algorithm(config.algorithms.back(), here);
    }
  }
  return config;
}

Config read_config(const std::string& path, Config base) {
  std::ifstream file(path);
  if (!file) fail(ErrorCode::Io, path, "cannot be read");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return parse_config(parse_json<Json>(text, path), path, std::move(base));
}

Json to_json(const Spec& spec) {
  Json json;
  for (const std::string& key : spec_keys()) {
    const bool idle = (key == "axis" && !spec.axis) || (key == "group_size" && !has_groups(spec)) ||
                      (key == "block_scale" && format(spec.format).kind != FormatKind::Block);
    if (!idle) json[key] = key_json(key, spec);
  }
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
    if (has_groups(spec)) text += fmt::format(" {}", spec.group_size);
    if (f.kind == FormatKind::Integer) text += spec.symmetric ? " symmetric" : " asymmetric";
  }
  if (spec.dynamic) text += " dynamic";
  return text;
}

}  // namespace kaon
