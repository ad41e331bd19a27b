#pragma once
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/layer.h"
#include "numerics/tensor_spec.h"

namespace kaon {

/// Which observer learns the range, and its options where they are not at their defaults.
struct ObserverConfig {
  std::string name = "min_max";
  std::map<std::string, double> options;

  bool operator==(const ObserverConfig&) const = default;
};

/// An algorithm and its options where they are not at their defaults.
struct AlgorithmConfig {
  std::string name;
  std::map<std::string, double> options = {};

  bool operator==(const AlgorithmConfig&) const = default;
};

/// How one tensor is quantized.
struct Spec {
  std::string format = "int8";
  Granularity granularity = Granularity::PerTensor;
  /// Weights: the output channels for per_channel, the input channels for groups and blocks. Activations: the last axis
  /// for groups and blocks, else 1.
  std::optional<int64_t> axis;
  int64_t group_size = 32;
  bool symmetric = true;
  ScaleType scale_type = ScaleType::Float32;
  Rounding rounding = Rounding::HalfEven;
  BlockScaleMode block_scale = BlockScaleMode::Even;
  bool dynamic = false;  ///< activations: parameters follow from the data at every run
  ObserverConfig observer;

  /// The same without observer, the axis filled in.
  TensorSpec tensor_spec(int64_t usual_axis) const;
  bool operator==(const Spec&) const = default;
};

/// What a rule says about one slot: nothing, that it stays float, or how it is quantized.
struct SlotRule {
  bool given = false;
  std::optional<Spec> spec;
  /// Those keys of `spec` that the rule says, the others being as an earlier rule has them; empty: it says all.
  std::set<std::string> keys;

  SlotRule() = default;
  SlotRule(Spec s) : given(true), spec(std::move(s)) {}
  static SlotRule stays_float() {
    SlotRule rule;
    rule.given = true;
    return rule;
  }
  bool operator==(const SlotRule&) const = default;
};

struct LayerRule {
  SlotRule input;
  SlotRule output;
  SlotRule weight;
  SlotRule bias;

  const SlotRule& at(Slot slot) const;
  SlotRule& at(Slot slot);
  bool operator==(const LayerRule&) const = default;
};

/// Puts `over` on top of `rule`, slot by slot and key by key. A new granularity starts with the axis and the group size
/// it has by default; a format that has blocks or is a cast has no granularity, and none but integers has a zero point,
/// so these start again there, too. Throws InvalidConfig at `where` where no rule names a format, or a group size is
/// said for what has no groups.
void merge(const LayerRule& over, LayerRule& rule, const std::string& where);

/// Which specs go where. A later row wins over an earlier one, key by key: `global`, then `by_type`, then `by_name`.
struct Config {
  std::string scheme;  ///< the name of the scheme that `global` came from, or ""
  LayerRule global;
  std::vector<std::pair<std::string, LayerRule>> by_type;  ///< operator -> rule: "Conv", "Gather"
  std::vector<std::pair<std::string, LayerRule>> by_name;  ///< glob on layer names -> rule; the last match wins
  std::vector<std::string> exclude;                        ///< globs on layer names; these stay float
  std::vector<AlgorithmConfig> algorithms;                 ///< see quant/algorithm.h; run in this order

  bool operator==(const Config&) const = default;
};

/// Reads a config: `{"scheme": "w8a8c", "global": {"weight": {...}, "input": null}, "by_type": {...}, "by_name": {...},
/// "exclude": [...], "algorithms": [...]}`; every key is optional. What it says goes on top of `base`, which must be
/// empty where it names a scheme. `where` names the source in errors. Throws InvalidConfig with the nearest known key
/// where one is unknown.
Config parse_config(const nlohmann::ordered_json& document, const std::string& where, Config base = {});
Config read_config(const std::string& path, Config base = {});

nlohmann::ordered_json to_json(const Spec& spec);
nlohmann::ordered_json to_json(const Config& config);

/// "int8 per_channel symmetric", for people.
std::string describe(const Spec& spec);

}  // namespace kaon
