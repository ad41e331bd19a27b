#include "base/error.h"
#include "numerics/fake_quantize_job.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numerics/fake_quantize_float.cpp"
#include "hwy/foreach_target.h"
#include "numerics/codecs-inl.h"
#include "numerics/fake_quantize-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kaon::HWY_NAMESPACE {
namespace {

template <class Codec>
struct FloatKernel {
  struct Tile {
    Floats scale;
  };
  Codec codec;

  HWY_INLINE Tile tile(float scale, int32_t) const { return {hn::Set(FloatTag(), scale)}; }
  HWY_INLINE Tile load(const float* scale, const int32_t*) const { return {hn::LoadU(FloatTag(), scale)}; }
  template <Rounding kRounding>
  HWY_INLINE Floats run(Floats x, const Tile& tile, Floats u) const {
    return hn::Mul(codec.template run<kRounding>(hn::Div(x, tile.scale), u), tile.scale);
  }
};

void float_range(const FakeQuantizeJob& job, int64_t begin, int64_t end) {
  const bool saturate = job.options.saturate;
  if (NarrowFloatCodec::fits(job.format)) {
    run_job(FloatKernel<NarrowFloatCodec>{NarrowFloatCodec(job.format, saturate)}, job, begin, end);
  } else if (WideFloatCodec::fits(job.format)) {
    run_job(FloatKernel<WideFloatCodec>{WideFloatCodec(job.format, saturate)}, job, begin, end);
  } else {
    fail(ErrorCode::Unsupported, job.format.name, "no kernel for {} exponent bits, {} mantissa bits and bias {}",
         job.format.exponent_bits, job.format.mantissa_bits, job.format.bias);
  }
}

}  // namespace
}  // namespace kaon::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kaon {

HWY_EXPORT(float_range);

void fake_quantize_float(const FakeQuantizeJob& job, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(float_range)(job, begin, end);
}

}  // namespace kaon
#endif
