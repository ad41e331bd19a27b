#pragma once
#include <cstdint>

#include "numerics/quantize.h"
#include "numerics/row_plan.h"

namespace kaon {

/// What the fake-quantize kernels are given; everything has been checked.
struct FakeQuantizeJob {
  FloatView in;
  float* out;
  const Format& format;
  const QuantParams& params;
  const QuantizeOptions& options;
  RowPlan plan;
  bool stream;  ///< write past the cache: the output is large and not the input
};

/// Whether an output is so large that it will have left the cache before anyone reads it.
bool worth_streaming(const FloatView& in, std::span<const float> out);

/// Elements [begin, end) of the job, on the calling thread, with the widest SIMD this machine has.
void fake_quantize_integer(const FakeQuantizeJob& job, int64_t begin, int64_t end);
void fake_quantize_float(const FakeQuantizeJob& job, int64_t begin, int64_t end);

}  // namespace kaon
