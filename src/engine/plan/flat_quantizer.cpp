#include "engine/plan/flat_quantizer.h"

#include "base/parallel.h"
#include "engine/plan/simd.h"
#include "numerics/check.h"
#include "numerics/fake_quantize_job.h"

namespace kaon {

namespace {

constexpr int64_t kGrain = 16 * 1024;  // elements worth waking a second thread for
constexpr int64_t kStep = 2048;        // elements that stay in the first-level cache between two steps of the work

KAON_SIMD void add(const float* a, const float* b, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

KAON_SIMD void clip(const float* in, float* out, int64_t count, float low, float high) {
  for (int64_t i = 0; i < count; ++i) {
    const float x = in[i] < low ? low : in[i];
    out[i] = x > high ? high : x;
  }
}

}  // namespace

FlatQuantizer::FlatQuantizer(const TensorSpec& spec, float scale, int32_t zero_point)
    : format_(format(spec.format)), params_{Tiling::per_tensor({}), {scale}, {}} {
  options_.rounding = spec.rounding;
  if (zero_point != 0) params_.zero_point = {zero_point};
  check_params(format_, params_);
}

std::optional<FlatQuantizer::Grid> FlatQuantizer::grid() const {
  if (format_.kind != FormatKind::Integer || options_.rounding != Rounding::HalfEven) return std::nullopt;
  const int64_t zero = params_.zero_point.empty() ? 0 : params_.zero_point.front();
  return Grid{params_.scale.front(), static_cast<float>(format_.integer_min() - zero),
              static_cast<float>(format_.integer_max() - zero)};
}

bool FlatQuantizer::operator==(const FlatQuantizer& other) const {
  return &format_ == &other.format_ && options_.rounding == other.options_.rounding &&
         params_.scale == other.params_.scale && params_.zero_point == other.params_.zero_point;
}

void FlatQuantizer::run(const float* in, float* out, int64_t count) const {
  const int64_t shape[] = {count};
  const FakeQuantizeJob job{FloatView(std::span(in, static_cast<size_t>(count))),
                            out,
                            format_,
                            params_,
                            options_,
                            RowPlan(Tiling::per_tensor(shape)),
                            false};
  (format_.kind == FormatKind::Integer ? fake_quantize_integer : fake_quantize_float)(job, 0, count);
}

void QuantizeAction::run(Runtime& runtime) {
  const auto* a = runtime.at<const float>(in_);
  const auto* b = steps_.addend < 0 ? nullptr : runtime.at<const float>(steps_.addend);
  auto* out = runtime.at<float>(out_);
  parallel_for(0, count_, kGrain, [&](int64_t first, int64_t last) {
    if (b == nullptr && steps_.clips.empty()) return steps_.quantizer->run(a + first, out + first, last - first);
    for (int64_t begin = first; begin < last; begin += kStep) {
      const int64_t count = std::min(kStep, last - begin);
      const float* from = a + begin;
      float* to = out + begin;
      if (b != nullptr) {
        add(from, b + begin, to, count);
        from = to;
      }
      for (const Clip& bounds : steps_.clips) {
        clip(from, to, count, bounds.low, bounds.high);
        from = to;
      }
      steps_.quantizer->run(from, to, count);
    }
  });
}

void QuantizeTensorAction::run(Runtime& runtime) {
  const auto count = static_cast<size_t>(element_count(shape_));
  const FloatView in(std::span(runtime.at<const float>(in_), count));
  const std::span out(runtime.at<float>(out_), count);
  if (params_) {
    fake_quantize(in, out, shape_, spec_, *params_);
  } else {
    fake_quantize(in, out, shape_, spec_);
  }
}

}  // namespace kaon
