#include <algorithm>
#include <limits>
#include <mutex>

#include "base/error.h"
#include "base/parallel.h"
#include "numerics/block_scale.h"
#include "numerics/check.h"
#include "numerics/fake_quantize_job.h"
#include "numerics/float_blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numerics/fake_quantize_blocks.cpp"
#include "hwy/foreach_target.h"
#include "numerics/codecs-inl.h"
#include "numerics/fake_quantize-inl.h"

#ifndef KAON_NUMERICS_BLOCK_JOB_
#define KAON_NUMERICS_BLOCK_JOB_
namespace kaon {
namespace {

/// A tensor of outer × line × inner; blocks run along `line`. Everything has been checked.
struct BlockJob {
  FloatView in;
  float* out;
  const Format& format;
  const Format& element;
  const QuantizeOptions& options;
  const BlockScaling& scaling;
  float global_scale;
  int64_t line, inner;
  bool stream;

  int64_t blocks_per_line() const { return (line + format.block - 1) / format.block; }
};

constexpr int64_t kColumns = 512;  // of blocks that lie side by side (inner > 1), worked on at a time

}  // namespace
}  // namespace kaon
#endif

HWY_BEFORE_NAMESPACE();
namespace kaon::HWY_NAMESPACE {
namespace {

/// Elements of an Integer format, without a zero point.
struct IntegerElement {
  IntegerCodec codec;
  IntegerElement(const Format& format, bool) : codec(format) {}
  template <Rounding kRounding>
  HWY_INLINE Floats run(Floats v, Floats u) const {
    return codec.run<kRounding>(v, codec.bounds(0), u);
  }
};

/// Whether a power of two and its inverse are both normal numbers of float32.
HWY_INLINE bool invertible(float scale) { return scale >= 0x1p-126f && scale <= 0x1p126f; }

/// Scales that are invertible powers of two: multiplying by the inverse is exact division. The scale of a block of
/// zeros may be any other positive number.
template <class Codec>
struct PowerOfTwoKernel {
  struct Tile {
    Floats scale, inverse;
  };
  Codec codec;

  HWY_INLINE Tile tile(float scale, int32_t) const { return with_inverse(hn::Set(FloatTag(), scale)); }
  HWY_INLINE Tile load(const float* scale, const int32_t*) const { return with_inverse(hn::LoadU(FloatTag(), scale)); }
  template <Rounding kRounding>
  HWY_INLINE Floats run(Floats x, const Tile& tile, Floats u) const {
    return hn::Mul(codec.template run<kRounding>(hn::Mul(x, tile.inverse), u), tile.scale);
  }

 private:
  static HWY_INLINE Tile with_inverse(Floats scale) {
    const FloatTag d;
    const BitsTag du;
    return {scale, hn::BitCast(d, hn::Sub(hn::Set(du, 254u << 23), hn::BitCast(du, scale)))};
  }
};

/// Any scale, and a global one; a scale of 0 gives 0.
template <class Codec>
struct GlobalScaleKernel {
  struct Tile {
    Floats scale;
  };
  Codec codec;
  float global_scale;

  HWY_INLINE Tile tile(float scale, int32_t) const { return {hn::Set(FloatTag(), scale)}; }
  HWY_INLINE Tile load(const float* scale, const int32_t*) const { return {hn::LoadU(FloatTag(), scale)}; }
  template <Rounding kRounding>
  HWY_INLINE Floats run(Floats x, const Tile& tile, Floats u) const {
    const FloatTag d;
    const Floats global = hn::Set(d, global_scale);
    const Floats q = codec.template run<kRounding>(hn::Div(hn::Mul(x, global), tile.scale), u);
    return hn::IfThenElseZero(hn::Gt(tile.scale, hn::Zero(d)), hn::Div(hn::Mul(q, tile.scale), global));
  }
};

template <class D>
HWY_INLINE hn::Vec<D> finite_magnitude(D d, hn::Vec<D> x) {
  const auto magnitude = hn::Abs(x);
  return hn::IfThenElseZero(hn::Lt(magnitude, hn::Set(d, std::numeric_limits<float>::infinity())), magnitude);
}

template <class D>
HWY_INLINE float finite_amax(D d, const float* HWY_RESTRICT values, int64_t count) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  float amax = 0;
  int64_t i = 0;
  if (count >= lanes) {
    auto most = hn::Zero(d);
    for (; i + lanes <= count; i += lanes) most = hn::Max(most, finite_magnitude(d, hn::LoadU(d, values + i)));
    amax = hn::GetLane(hn::MaxOfLanes(d, most));
  }
  const hn::CappedTag<float, 1> d1;
  for (; i < count; ++i) amax = std::max(amax, hn::GetLane(finite_magnitude(d1, hn::Set(d1, values[i]))));
  return amax;
}

template <Rounding kRounding>
HWY_INLINE float round_one(float v, float u) {
  const FloatTag d;
  const Floats x = hn::Set(d, v);
  return hn::GetLane(with_sign(round_magnitude<kRounding>(hn::Abs(x), x, hn::Set(d, u)), x));
}

/// The scale of the block of `count` elements that starts at `index`.
template <Rounding kRounding>
HWY_INLINE float block_scale(const BlockJob& job, float amax, int64_t index, int64_t count) {
  uint8_t code = job.scaling.code(amax, job.global_scale);
  const float scale = job.scaling.scale(code);
  if (!job.format.widen_on_overflow || amax / scale <= static_cast<float>(job.element.max())) return scale;
  // Seldom: only a block whose largest element is within one of the end of the codes comes here.
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = index + i * job.inner;
    const float v = job.in.at(at) / scale;
    const float u = kRounding == Rounding::Stochastic ? random_unit(job.options.seed, static_cast<uint64_t>(at)) : 0;
    const float q = round_one<kRounding>(v, u);
    const bool finite = std::abs(v) <= std::numeric_limits<float>::max();
    if (finite && (q > job.element.max() || q < job.element.min())) return job.scaling.scale(code + 1);
  }
  return scale;
}

/// Both passes over the blocks: their scales, then their elements.
template <class Codec>
struct BlockRunner {
  const BlockJob& job;
  PowerOfTwoKernel<Codec> power_of_two;
  GlobalScaleKernel<Codec> global;

  explicit BlockRunner(const BlockJob& block_job)
      : job(block_job),
        power_of_two{Codec(block_job.element, true)},
        global{Codec(block_job.element, true), block_job.global_scale} {}

  /// body(kernel) with the kernel that these scales allow.
  template <class Body>
  HWY_INLINE void with_kernel(bool all_invertible, const Body& body) const {
    if (job.format.scale == ScaleType::E8M0 && all_invertible) {
      body(power_of_two);
    } else {
      body(global);
    }
  }

  /// Blocks [begin, end) of a tensor whose blocks are contiguous.
  template <Rounding kRounding>
  void contiguous(int64_t begin, int64_t end) const {
    Scratch scratch;
    const int64_t block = job.format.block, per_line = job.blocks_per_line();
    for (int64_t b = begin; b < end;) {
      const int64_t line = b / per_line, in_line = b % per_line;
      const int64_t blocks = std::min({end - b, per_line - in_line, std::max<int64_t>(1, kStep / block)});
      const int64_t index = line * job.line + in_line * block;
      const int64_t count = std::min(blocks * block, job.line - in_line * block);
      const float* in = load_floats(job.in, index, count, scratch.in);
      float* out = job.out + index;
      float* to = job.stream ? scratch.out : out;

      bool all_invertible = true;
      for (int64_t i = 0; i < blocks; ++i) {
        const int64_t size = std::min(block, count - i * block);
        const float* x = in + i * block;
        const float amax =
            size <= 8 ? finite_amax(hn::CappedTag<float, 8>(), x, size) : finite_amax(FloatTag(), x, size);
        scratch.scale[i] = block_scale<kRounding>(job, amax, index + i * block, size);
        all_invertible &= amax == 0 || invertible(scratch.scale[i]);
      }
      if (kRounding == Rounding::Stochastic) fill_random(job.options.seed, index, count, scratch.u);
      with_kernel(all_invertible, [&](const auto& kernel) HWY_ATTR {
        run_tiles<kRounding>(kernel, block, 0, count, scratch.scale, nullptr, in, to, scratch);
      });
      if (job.stream) stream(scratch.out, count, out);
      b += blocks;
    }
    if (job.stream) hwy::FlushStream();
  }

  /// Units [begin, end) of a tensor whose blocks lie side by side; a unit is a block long and up to kColumns wide.
  template <Rounding kRounding>
  void side_by_side(int64_t begin, int64_t end) const {
    Scratch scratch;
    HWY_ALIGN_MAX float amax[kColumns + HWY_MAX_BYTES / sizeof(float)];
    const FloatTag d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    const int64_t block = job.format.block, per_line = job.blocks_per_line();
    const int64_t per_block = (job.inner + kColumns - 1) / kColumns;
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t line = unit / per_block / per_line, in_line = unit / per_block % per_line;
      const int64_t column = unit % per_block * kColumns;
      const int64_t columns = std::min(kColumns, job.inner - column);
      const int64_t rows = std::min(block, job.line - in_line * block);
      const int64_t index = (line * job.line + in_line * block) * job.inner + column;

      std::fill_n(amax, columns, 0.0f);
      for (int64_t row = 0; row < rows; ++row) {
        const float* x = load_floats(job.in, index + row * job.inner, columns, scratch.in);
        int64_t i = 0;
        for (; i + lanes <= columns; i += lanes) {
          hn::Store(hn::Max(hn::Load(d, amax + i), finite_magnitude(d, hn::LoadU(d, x + i))), d, amax + i);
        }
        for (; i < columns; ++i) amax[i] = std::max(amax[i], finite_amax(d, x + i, 1));
      }
      bool all_invertible = true;
      for (int64_t i = 0; i < columns; ++i) {
        scratch.scale[i] = block_scale<kRounding>(job, amax[i], index + i, rows);
        all_invertible &= amax[i] == 0 || invertible(scratch.scale[i]);
      }
      with_kernel(all_invertible, [&]<class Kernel>(const Kernel& kernel) HWY_ATTR {
        const TileForEach<Kernel> each{kernel, scratch.scale, nullptr};
        for (int64_t row = 0; row < rows; ++row) {
          const int64_t at = index + row * job.inner;
          if (kRounding == Rounding::Stochastic) fill_random(job.options.seed, at, columns, scratch.u);
          const float* in = load_floats(job.in, at, columns, scratch.in);
          apply<kRounding>(kernel, each, in, scratch.u, columns, job.stream ? scratch.out : job.out + at);
          if (job.stream) stream(scratch.out, columns, job.out + at);
        }
      });
    }
    if (job.stream) hwy::FlushStream();
  }
};

template <class Codec>
void run_blocks(const BlockJob& job, int64_t begin, int64_t end) {
  const BlockRunner<Codec> runner(job);
  with_rounding(job.options.rounding, [&]<Rounding kRounding>() {
    if (job.inner == 1) {
      runner.template contiguous<kRounding>(begin, end);
    } else {
      runner.template side_by_side<kRounding>(begin, end);
    }
  });
}

void block_range(const BlockJob& job, int64_t begin, int64_t end) {
  if (job.element.kind == FormatKind::Integer) {
    run_blocks<IntegerElement>(job, begin, end);
  } else if (NarrowFloatCodec::fits(job.element)) {
    run_blocks<NarrowFloatCodec>(job, begin, end);
  } else {
    fail(ErrorCode::Unsupported, job.format.name, "no kernel for blocks of {}", job.element.name);
  }
}

float amax_range(const FloatView& in, int64_t begin, int64_t end) {
  HWY_ALIGN_MAX float scratch[kBlock];
  float amax = 0;
  for (int64_t i = begin; i < end; i += kBlock) {
    const int64_t count = std::min(kBlock, end - i);
    amax = std::max(amax, finite_amax(FloatTag(), load_floats(in, i, count, scratch), count));
  }
  return amax;
}

}  // namespace
}  // namespace kaon::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kaon {

HWY_EXPORT(block_range);
HWY_EXPORT(amax_range);

namespace {

constexpr int64_t kGrain = int64_t{1} << 15;  // elements
constexpr int64_t kLongestBlock = 1024;       // what the kernels' scratch buffers hold

float tensor_amax(const FloatView& in) {
  std::mutex mutex;
  float amax = 0;
  parallel_for(0, in.size, kGrain, [&](int64_t begin, int64_t end) {
    const float own = HWY_DYNAMIC_DISPATCH(amax_range)(in, begin, end);
    const std::lock_guard lock(mutex);
    amax = std::max(amax, own);
  });
  return amax;
}

}  // namespace

void fake_quantize_blocks(FloatView in, std::span<float> out, const Format& format, std::span<const int64_t> shape,
                          int64_t axis, const QuantizeOptions& options, float global_amax) {
  check_view(in, "in");
  check_blocks(format, shape, axis, in.size, global_amax);
  check_size(std::ssize(out), in.size, "out");
  if (format.block > kLongestBlock) {
    fail(ErrorCode::Unsupported, format.name, "blocks of {}; up to {} are possible", format.block, kLongestBlock);
  }
  if (in.size == 0) return;

  const BlockScaling scaling(format, options.scale_mode);
  if (format.global_scale && global_amax < 0) global_amax = tensor_amax(in);
  int64_t inner = 1;
  const size_t line_axis = check_axis(axis, shape);
  for (size_t i = line_axis + 1; i < shape.size(); ++i) inner *= shape[i];
  BlockJob job{in,
               out.data(),
               format,
               kaon::format(format.element),
               options,
               scaling,
               format.global_scale ? scaling.global_scale(global_amax) : 1.0f,
               shape[line_axis],
               inner,
               worth_streaming(in, out)};
  // Lines of whole blocks that follow each other are one line.
  if (inner == 1 && job.line % format.block == 0) job.line = in.size;

  const int64_t lines = in.size / (job.line * inner);
  const int64_t width = inner == 1 ? 1 : (inner + kColumns - 1) / kColumns;
  const int64_t units = lines * job.blocks_per_line() * width;
  const int64_t unit_size = std::max<int64_t>(1, in.size / units);
  parallel_for(0, units, std::max<int64_t>(1, kGrain / unit_size), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(block_range)(job, begin, end);
  });
}

}  // namespace kaon
#endif
