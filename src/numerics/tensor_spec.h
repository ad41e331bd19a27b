#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "base/enum_names.h"
#include "numerics/quantize.h"
#include "numerics/scale.h"

namespace kaon {

/// Which elements share a scale; see Tiling.
enum class Granularity { PerTensor, PerChannel, PerGroup, PerBlock, PerToken };

/// How a tensor is quantized, in words: everything but the parameters themselves.
struct TensorSpec {
  std::string format = "int8";
  Granularity granularity = Granularity::PerTensor;
  /// per_channel: the channel's axis. per_group and Block formats: the axis that groups run along. May be negative.
  int64_t axis = 0;
  int64_t group_size = 32;  ///< per_group: elements of a group; per_block: the side of a square tile
  bool symmetric = true;
  ScaleType scale_type = ScaleType::Float32;
  Rounding rounding = Rounding::HalfEven;
  BlockScaleMode block_scale = BlockScaleMode::Even;  ///< Block formats with an E8M0 scale

  bool operator==(const TensorSpec&) const = default;
};

/// float16 and bfloat16 are cast, not scaled: their only scale is 1.
bool is_cast(const Format& format);

/// Whether the scales lie inside the format itself (Block kind): such a spec has no QuantParams.
bool has_own_scales(const TensorSpec& spec);

/// Whether scales are chosen from the values: neither cast nor with scales of its own.
bool learns_scales(const Format& format);

/// The cut of a tensor of `shape`. Throws InvalidInput where the axis does not exist.
Tiling tiling_of(const TensorSpec& spec, std::span<const int64_t> shape);

/// Parameters from the data itself: the range of each tile.
QuantParams choose_params(FloatView in, std::span<const int64_t> shape, const TensorSpec& spec);

/// Quantizes and dequantizes with given parameters. `params.tiling` may be that of another shape where the spec is per
/// tensor. `out` may be `in` itself.
void fake_quantize(FloatView in, std::span<float> out, std::span<const int64_t> shape, const TensorSpec& spec,
                   const QuantParams& params);

/// The same with parameters from the data itself; the only way for Block formats.
void fake_quantize(FloatView in, std::span<float> out, std::span<const int64_t> shape, const TensorSpec& spec);

template <>
struct EnumNames<Granularity> {
  static constexpr std::string_view kKind = "granularity";
  static constexpr std::pair<std::string_view, Granularity> kAll[] = {{"per_tensor", Granularity::PerTensor},
                                                                      {"per_channel", Granularity::PerChannel},
                                                                      {"per_group", Granularity::PerGroup},
                                                                      {"per_block", Granularity::PerBlock},
                                                                      {"per_token", Granularity::PerToken}};
};

template <>
struct EnumNames<ScaleType> {
  static constexpr std::string_view kKind = "scale type";
  static constexpr std::pair<std::string_view, ScaleType> kAll[] = {
      {"float32", ScaleType::Float32},         {"float16", ScaleType::Float16}, {"bfloat16", ScaleType::BFloat16},
      {"power_of_two", ScaleType::PowerOfTwo}, {"e8m0", ScaleType::E8M0},       {"e4m3", ScaleType::E4M3}};
};

template <>
struct EnumNames<Rounding> {
  static constexpr std::string_view kKind = "rounding";
  static constexpr std::pair<std::string_view, Rounding> kAll[] = {{"half_even", Rounding::HalfEven},
                                                                   {"half_away", Rounding::HalfAway},
                                                                   {"floor", Rounding::Floor},
                                                                   {"ceil", Rounding::Ceil},
                                                                   {"stochastic", Rounding::Stochastic}};
};

template <>
struct EnumNames<BlockScaleMode> {
  static constexpr std::string_view kKind = "block scale";
  static constexpr std::pair<std::string_view, BlockScaleMode> kAll[] = {
      {"even", BlockScaleMode::Even}, {"floor", BlockScaleMode::Floor}, {"ceil", BlockScaleMode::Ceil}};
};

}  // namespace kaon
