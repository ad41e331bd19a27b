#pragma once
#include "engine/value.h"

namespace kaon {

enum class E8M0Rounding { Up, Down, Nearest };

struct CastOptions {
  bool saturate = true;  ///< to the 8-bit floats: the largest number past the range, else Inf or NaN
  E8M0Rounding e8m0 = E8M0Rounding::Up;
};

/// Whether `type` is an 8- or 4-bit float, whose codes travel in uint8.
bool is_float_code(DType type);

/// `value` as another type, by the rules of ONNX's Cast: floats are cut to integers, integers wrap, and whatever is not
/// zero is true.
Value cast(const Value& value, DType type, const CastOptions& options = {});

}  // namespace kaon
