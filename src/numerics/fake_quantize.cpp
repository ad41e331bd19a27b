#include <unistd.h>

#include <algorithm>

#include "base/parallel.h"
#include "numerics/check.h"
#include "numerics/fake_quantize_job.h"
#include "numerics/float_blocks.h"
#include "numerics/quantize.h"

namespace kaon {

namespace {

constexpr int64_t kGrain = int64_t{1} << 15;  // elements; a thread is not worth waking for less

}  // namespace

bool worth_streaming(const FloatView& in, std::span<const float> out) {
  static const int64_t enough = [] {
    const int64_t cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return std::clamp<int64_t>(cache / 2, int64_t{8} << 20, int64_t{32} << 20);
  }();
  return in.data != out.data() && std::ssize(out) * static_cast<int64_t>(sizeof(float)) > enough;
}

void fake_quantize(FloatView in, std::span<float> out, const Format& format, const QuantParams& params,
                   const QuantizeOptions& options) {
  check_view(in, "in");
  check_quantize(format, params, in.size, std::ssize(out));
  const FakeQuantizeJob job{in, out.data(), format, params, options, RowPlan(params.tiling), worth_streaming(in, out)};
  const auto run = format.kind == FormatKind::Integer ? fake_quantize_integer : fake_quantize_float;
  parallel_for(0, in.size, kGrain, [&](int64_t begin, int64_t end) { run(job, begin, end); });
}

}  // namespace kaon
