#include "numerics/fake_quantize_job.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numerics/fake_quantize_integer.cpp"
#include "hwy/foreach_target.h"
#include "numerics/codecs-inl.h"
#include "numerics/fake_quantize-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kaon::HWY_NAMESPACE {
namespace {

struct IntegerKernel {
  struct Tile {
    Floats scale;
    IntegerCodec::Bounds bounds;
  };
  IntegerCodec codec;

  HWY_INLINE Tile tile(float scale, int32_t zero_point) const {
    return {hn::Set(FloatTag(), scale), codec.bounds(zero_point)};
  }
  HWY_INLINE Tile load(const float* scale, const int32_t* zero_point) const {
    return {hn::LoadU(FloatTag(), scale), zero_point == nullptr ? codec.bounds(0) : codec.bounds(zero_point)};
  }
  template <Rounding kRounding>
  HWY_INLINE Floats run(Floats x, const Tile& tile, Floats u) const {
    return hn::Mul(codec.run<kRounding>(hn::Div(x, tile.scale), tile.bounds, u), tile.scale);
  }
};

void integer_range(const FakeQuantizeJob& job, int64_t begin, int64_t end) {
  run_job(IntegerKernel{IntegerCodec(job.format)}, job, begin, end);
}

}  // namespace
}  // namespace kaon::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kaon {

HWY_EXPORT(integer_range);

void fake_quantize_integer(const FakeQuantizeJob& job, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(integer_range)(job, begin, end);
}

}  // namespace kaon
#endif
