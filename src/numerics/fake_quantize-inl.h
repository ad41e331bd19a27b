// Walks a FakeQuantizeJob for a kernel. Included once for each target.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "numerics/fake_quantize_job.h"
#include "numerics/float_blocks.h"
#include "numerics/float_codec.h"
#include "numerics/rounding-inl.h"

#if defined(KAON_NUMERICS_FAKE_QUANTIZE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KAON_NUMERICS_FAKE_QUANTIZE_INL_H_
#undef KAON_NUMERICS_FAKE_QUANTIZE_INL_H_
#else
#define KAON_NUMERICS_FAKE_QUANTIZE_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace kaon::HWY_NAMESPACE {
namespace {

constexpr int64_t kStep = 1024;  // elements worked on at a time: the scratch buffers stay in the first-level cache
constexpr int64_t kLine = 64;    // bytes

struct Scratch {
  HWY_ALIGN_MAX float in[kStep];
  HWY_ALIGN_MAX float out[kStep];
  HWY_ALIGN_MAX float scale[kStep];       // of blocks
  HWY_ALIGN_MAX float each_scale[kStep];  // of elements, where tiles are shorter than a vector
  HWY_ALIGN_MAX int32_t zero_point[kStep];
  HWY_ALIGN_MAX float u[kStep + HWY_MAX_BYTES / sizeof(float)];
};

/// Writes past the cache what has to be written once and is not read again soon.
inline void stream(const float* HWY_RESTRICT from, int64_t count, float* HWY_RESTRICT to) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto misaligned = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) / sizeof(float)) % lanes;
  int64_t i = std::min((lanes - misaligned) % lanes, count);
  std::memcpy(to, from, static_cast<size_t>(i) * sizeof(float));
  for (; i + lanes <= count; i += lanes) hn::Stream(hn::LoadU(d, from + i), d, to + i);
  std::memcpy(to + i, from + i, static_cast<size_t>(count - i) * sizeof(float));
}

/// out[i] = kernel(in[i], parameters(i), u[i]); `in` and `out` may be the same.
template <Rounding kRounding, class Kernel, class Parameters>
HWY_INLINE void apply(const Kernel& kernel, const Parameters& parameters, const float* in, const float* u,
                      int64_t count, float* out) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto random = [&](int64_t i)
                          HWY_ATTR { return kRounding == Rounding::Stochastic ? hn::LoadU(d, u + i) : hn::Zero(d); };
  if (count < lanes) {
    HWY_ALIGN_MAX float part[HWY_MAX_BYTES / sizeof(float)] = {};
    std::memcpy(part, in, static_cast<size_t>(count) * sizeof(float));
    const Floats y = kernel.template run<kRounding>(hn::Load(d, part), parameters.part(count), random(0));
    hn::Store(y, d, part);
    std::memcpy(out, part, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  // The last vector may overlap the one before it; it is read first, because `out` may be `in`.
  const int64_t last = count - lanes;
  const Floats last_x = hn::LoadU(d, in + last);
  for (int64_t i = 0; i < last; i += lanes) {
    hn::StoreU(kernel.template run<kRounding>(hn::LoadU(d, in + i), parameters.at(i), random(i)), d, out + i);
  }
  hn::StoreU(kernel.template run<kRounding>(last_x, parameters.at(last), random(last)), d, out + last);
}

/// One tile's parameters for every element.
template <class Tile>
struct SameTile {
  Tile tile;
  HWY_INLINE const Tile& at(int64_t) const { return tile; }
  HWY_INLINE const Tile& part(int64_t) const { return tile; }
};

/// Parameters that differ from element to element.
template <class Kernel>
struct TileForEach {
  const Kernel& kernel;
  const float* scale;
  const int32_t* zero_point;  // or null
  HWY_INLINE typename Kernel::Tile at(int64_t i) const {
    return kernel.load(scale + i, zero_point == nullptr ? nullptr : zero_point + i);
  }
  HWY_INLINE typename Kernel::Tile part(int64_t count) const {
    HWY_ALIGN_MAX float scales[HWY_MAX_BYTES / sizeof(float)];
    HWY_ALIGN_MAX int32_t zeros[HWY_MAX_BYTES / sizeof(float)] = {};
    std::fill(std::begin(scales), std::end(scales), 1.0f);
    std::copy_n(scale, count, scales);
    if (zero_point != nullptr) std::copy_n(zero_point, count, zeros);
    return kernel.load(scales, zero_point == nullptr ? nullptr : zeros);
  }
};

/// Elements [begin, end) of a row cut into tiles; `scale` and `zero_point` (or null) are those of the row's first tile.
template <Rounding kRounding, class Kernel>
HWY_INLINE void run_tiles(const Kernel& kernel, int64_t tile, int64_t begin, int64_t end, const float* scale,
                          const int32_t* zero_point, const float* in, float* out, Scratch& scratch) {
  const int64_t count = end - begin;
  if (tile == 1) {
    const TileForEach<Kernel> each{kernel, scale + begin, zero_point == nullptr ? nullptr : zero_point + begin};
    apply<kRounding>(kernel, each, in, scratch.u, count, out);
  } else if (tile < static_cast<int64_t>(hn::Lanes(FloatTag()))) {
    for (int64_t i = 0, index = begin / tile; i < count; ++index) {
      const int64_t stop = std::min(count, (index + 1) * tile - begin);
      std::fill(scratch.each_scale + i, scratch.each_scale + stop, scale[index]);
      if (zero_point != nullptr) std::fill(scratch.zero_point + i, scratch.zero_point + stop, zero_point[index]);
      i = stop;
    }
    const TileForEach<Kernel> each{kernel, scratch.each_scale, zero_point == nullptr ? nullptr : scratch.zero_point};
    apply<kRounding>(kernel, each, in, scratch.u, count, out);
  } else {
    for (int64_t i = 0, index = begin / tile; i < count; ++index) {
      const int64_t stop = std::min(count, (index + 1) * tile - begin);
      const SameTile<typename Kernel::Tile> same{
          kernel.tile(scale[index], zero_point == nullptr ? 0 : zero_point[index])};
      apply<kRounding>(kernel, same, in + i, scratch.u + i, stop - i, out + i);
      i = stop;
    }
  }
}

template <Rounding kRounding, class Kernel>
void run_rows(const Kernel& kernel, const FakeQuantizeJob& job, int64_t begin, int64_t end) {
  Scratch scratch;
  const int64_t row_size = job.plan.row_size();
  for (int64_t row = begin / row_size; row * row_size < end; ++row) {
    const int64_t row_begin = std::max<int64_t>(begin - row * row_size, 0);
    const int64_t row_end = std::min(end - row * row_size, row_size);
    const int64_t first_tile = job.plan.first_tile(row);
    const float* scale = job.params.scale.data() + first_tile;
    const int32_t* zero_point = job.params.zero_point.empty() ? nullptr : job.params.zero_point.data() + first_tile;
    for (int64_t i = row_begin; i < row_end;) {
      const int64_t index = row * row_size + i;
      float* out = job.out + index;
      // Streamed steps end on a cache line of the output.
      int64_t step = kStep;
      if (job.stream) step -= static_cast<int64_t>(reinterpret_cast<uintptr_t>(out) % kLine / sizeof(float));
      const int64_t stop = std::min(row_end, i + step);
      if (kRounding == Rounding::Stochastic) fill_random(job.options.seed, index, stop - i, scratch.u);
      const float* in = load_floats(job.in, index, stop - i, scratch.in);
      run_tiles<kRounding>(kernel, job.plan.tile(), i, stop, scale, zero_point, in, job.stream ? scratch.out : out,
                           scratch);
      if (job.stream) stream(scratch.out, stop - i, out);
      i = stop;
    }
  }
  if (job.stream) hwy::FlushStream();
}

template <class Kernel>
void run_job(const Kernel& kernel, const FakeQuantizeJob& job, int64_t begin, int64_t end) {
  with_rounding(job.options.rounding, [&]<Rounding kRounding>() { run_rows<kRounding>(kernel, job, begin, end); });
}

}  // namespace
}  // namespace kaon::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
