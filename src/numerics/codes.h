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

/// Already divided numbers to unpacked codes of an Integer or Float format, a step at a time.
class Encoder {
 public:
  static constexpr int64_t kStep = 1024;

  Encoder(const Format& format, const QuantizeOptions& options);

  /// count <= kStep. `zero_point` has one for each element, or is null; `index` is the first element's place in the
  /// tensor. `codes` need not be aligned.
  void encode(const float* divided, const int32_t* zero_point, int64_t index, int64_t count, std::byte* codes) const;

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
