#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>

#include "numerics/float_codec.h"
#include "numerics/quantize.h"

namespace kaon {

struct EncodeJob {
  const Format& format;
  const QuantizeOptions& options;
  const std::optional<FloatCodec>& codec;  ///< of Float formats
};

/// What the numbers of a step are divided by, and what their codes count from: the same for those of a tile.
struct TileParams {
  const float* scale;         ///< of the tile that the first number lies in; those of the next tiles follow
  const int32_t* zero_point;  ///< likewise, or null: all 0
  int64_t tile;               ///< numbers in a tile
  int64_t offset;             ///< of the first number in its tile
  float times = 1;            ///< the numbers are multiplied by it first
};

/// 0 where the scale is 0.
inline float divided(float value, float times, float scale) { return scale == 0 ? 0.0f : value * times / scale; }

/// Numbers to unpacked codes of an Integer or Float format, a step at a time.
class Encoder {
 public:
  static constexpr int64_t kStep = 1024;

  Encoder(const Format& format, const QuantizeOptions& options);

  /// count <= kStep. `index` is the first element's place in the tensor. `codes` need not be aligned.
  void encode(const float* values, const TileParams& params, int64_t index, int64_t count, std::byte* codes) const;

 private:
  const Format& format_;
  QuantizeOptions options_;
  std::optional<FloatCodec> codec_;  ///< Float formats
};

/// Codes to float32(decode(code) - zero_point).
class Decoder {
 public:
  explicit Decoder(const Format& format);

  void decode(const std::byte* codes, const int32_t* zero_point, int64_t count, float* values) const;

 private:
  const Format& format_;
  std::optional<FloatCodec> codec_;  ///< Float formats
  float table_[256];                 ///< the codes of up to 8 bits
};

}  // namespace kaon
