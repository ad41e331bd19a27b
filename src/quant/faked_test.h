#pragma once
#include <vector>

#include "numerics/error_metrics.h"
#include "numerics/tensor_spec.h"

namespace kaon {

/// How far `values` are from themselves once quantized with one scale and zero point.
inline ErrorMetrics faked_error(const std::vector<float>& values, const TensorSpec& spec, ScaleZero params) {
  std::vector<float> out(values.size());
  const int64_t shape[] = {std::ssize(values)};
  QuantParams all{Tiling::per_tensor(shape), {params.scale}, {}};
  if (params.zero_point != 0) all.zero_point = {params.zero_point};
  fake_quantize(values, out, shape, spec, all);
  ErrorMetrics metrics;
  metrics.update(out, values);
  return metrics;
}

}  // namespace kaon
