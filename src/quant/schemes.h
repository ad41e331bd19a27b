#pragma once
#include <string>
#include <vector>

#include "base/registry.h"
#include "quant/config.h"

namespace kaon {

enum class Strategy { WeightOnly, Static, Dynamic };

template <>
struct EnumNames<Strategy> {
  static constexpr std::string_view kKind = "strategy";
  static constexpr std::pair<std::string_view, Strategy> kAll[] = {
      {"weight_only", Strategy::WeightOnly}, {"static", Strategy::Static}, {"dynamic", Strategy::Dynamic}};
};

/// A named preset.
struct Scheme {
  std::string name;
  std::string summary;
  LayerRule rule;
};

/// Every scheme, by name.
const Registry<Scheme>& schemes();

/// The config of a scheme; throws with the nearest known name, or those that use it where `name` is a number format.
Config scheme_config(const std::string& name);

/// How a rule works: does it quantize activations, and are their ranges learned from data?
Strategy strategy_of(const LayerRule& rule);
/// Whether `config` asks for data: a range that must be calibrated, or an algorithm.
bool needs_calibration(const Config& config);

/// The integer types of static int8, activations then weights.
enum class Layout { U8S8, S8S8, U8U8 };

template <>
struct EnumNames<Layout> {
  static constexpr std::string_view kKind = "layout";
  static constexpr std::pair<std::string_view, Layout> kAll[] = {
      {"u8s8", Layout::U8S8}, {"s8s8", Layout::S8S8}, {"u8u8", Layout::U8U8}};
};

/// Gives every 8-bit integer activation and weight of `config` the types of `layout`.
/// Throws InvalidConfig where there is no static 8-bit activation that it could apply to.
void set_layout(Config& config, Layout layout);

/// Makes `observer` learn the ranges of activations.
void set_observer(Config& config, const ObserverConfig& observer);

}  // namespace kaon
