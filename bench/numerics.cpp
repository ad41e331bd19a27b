// Fake quantization and the min/max observer, beside memcpy and a plain sum with as many threads.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>

#include "base/error.h"
#include "base/parallel.h"
#include "bench.h"
#include "numerics/quantize.h"
#include "numerics/reference.h"
#include "numerics/scale.h"

namespace kaon {

namespace {

using bench::Case;
using bench::Cases;
using bench::Work;

struct Size {
  const char* name;
  std::vector<int64_t> shape;
};

const Size kSizes[] = {{"64Mi", {16384, 4096}}, {"4096x4096", {4096, 4096}}};

struct Buffers {
  std::vector<float> in, out;

  explicit Buffers(int64_t count) : in(count), out(count) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> pattern(1 << 16);
    for (float& x : pattern) x = normal(random);
    for (int64_t i = 0; i < count; ++i) in[i] = pattern[i % std::ssize(pattern)] * (1 + (i >> 16) % 7);
  }
};

int64_t count_of(const std::vector<int64_t>& shape) { return shape[0] * shape[1]; }

void copy_all(const std::vector<float>& from, std::vector<float>& to) {
  parallel_for(0, std::ssize(from), 1 << 15, [&](int64_t begin, int64_t end) {
    std::memcpy(to.data() + begin, from.data() + begin, (end - begin) * sizeof(float));
  });
}

/// `run` on a piece of the data, against the scalar reference, bit for bit.
void check_equal(const std::vector<float>& got, const std::vector<float>& expected, const std::string& name) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::memcmp(&got[i], &expected[i], sizeof(float)) == 0) continue;
    fail(ErrorCode::Internal, name, "element {} is {}; the reference says {}", i, got[i], expected[i]);
  }
}

/// As a function of the tensor's shape, so that a case can be checked on a small one.
using TilingOf = Tiling (*)(std::span<const int64_t>);

struct Granularity {
  const char* name;
  TilingOf tiling;
};

const Granularity kPerTensor{"per_tensor", [](std::span<const int64_t> shape) { return Tiling::per_tensor(shape); }};
const Granularity kPerChannel{"per_channel",
                              [](std::span<const int64_t> shape) { return Tiling::per_channel(shape, 0); }};
const Granularity kLastAxis{"per_channel_last",
                            [](std::span<const int64_t> shape) { return Tiling::per_channel(shape, 1); }};
const Granularity kGroup32{"group32", [](std::span<const int64_t> shape) { return Tiling::per_group(shape, 1, 32); }};
const Granularity kGroup128{"group128",
                            [](std::span<const int64_t> shape) { return Tiling::per_group(shape, 1, 128); }};

constexpr int64_t kCheckRows = 16;  // the scalar reference is slow

void check_fake_quantize(const std::string& name, const Format& format, TilingOf tiling, Symmetry symmetry) {
  const std::vector<int64_t> shape{kCheckRows, 4096};
  const Buffers data(count_of(shape));
  const QuantParams params = choose_params(data.in, tiling(shape), format, symmetry);
  std::vector<float> expected(data.in.size()), got(data.in.size());
  reference::fake_quantize(data.in, expected, format, params);
  fake_quantize(data.in, got, format, params);
  check_equal(got, expected, name);
}

void add_fake_quantize(Cases& cases, const Size& size, int threads, const std::string& format_name,
                       const Granularity& granularity, Symmetry symmetry, bool in_place) {
  const std::string name =
      fmt::format("{}/{}{}/{}/{}t", format_name, granularity.name, in_place ? "_inplace" : "", size.name, threads);
  const double gigabytes = 8e-9 * static_cast<double>(count_of(size.shape));  // read and written
  cases.push_back(
      {name, "memcpy", "GB/s", gigabytes, threads, [=, shape = size.shape] {
         const Format& format = kaon::format(format_name);
         auto data = std::make_shared<Buffers>(count_of(shape));
         auto params =
             std::make_shared<QuantParams>(choose_params(data->in, granularity.tiling(shape), format, symmetry));
         Work work;
         work.check = [=, &format] { check_fake_quantize(name, format, granularity.tiling, symmetry); };
         work.kaon = [=, &format] { fake_quantize(data->in, in_place ? data->in : data->out, format, *params); };
         work.peer = [=] { copy_all(data->in, data->out); };
         return work;
       }});
}

void add_blocks(Cases& cases, const Size& size, int threads, const std::string& format_name, int64_t axis) {
  const int block = kaon::format(format_name).block;
  const std::string name =
      fmt::format("{}/block{}{}/{}/{}t", format_name, block, axis == 0 ? "_axis0" : "", size.name, threads);
  const double gigabytes = 8e-9 * static_cast<double>(count_of(size.shape));
  cases.push_back({name, "memcpy", "GB/s", gigabytes, threads, [=, shape = size.shape] {
                     const Format& format = kaon::format(format_name);
                     auto data = std::make_shared<Buffers>(count_of(shape));
                     Work work;
                     work.check = [=, &format] {
                       const std::vector<int64_t> small_shape{32, 4096};
                       const Buffers small(count_of(small_shape));
                       std::vector<float> expected(small.in.size()), got(small.in.size());
                       reference::fake_quantize_blocks(small.in, expected, format, small_shape, axis);
                       fake_quantize_blocks(small.in, got, format, small_shape, axis);
                       check_equal(got, expected, name);
                     };
                     work.kaon = [=, &format] { fake_quantize_blocks(data->in, data->out, format, shape, axis); };
                     work.peer = [=] { copy_all(data->in, data->out); };
                     return work;
                   }});
}

/// A sum whose additions keep up with the memory, as -ffast-math would make it.
float sum(const float* values, int64_t count) {
  constexpr int kLanes = 64;
  float partial[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) partial[lane] += values[i + lane];
  }
  float total = 0;
  for (const float p : partial) total += p;
  for (; i < count; ++i) total += values[i];
  return total;
}

void add_min_max(Cases& cases, const Size& size, int threads, const Granularity& granularity) {
  const std::string name = fmt::format("minmax/{}/{}/{}t", granularity.name, size.name, threads);
  const double gigabytes = 4e-9 * static_cast<double>(count_of(size.shape));
  cases.push_back({name, "sum", "GB/s", gigabytes, threads, [=, shape = size.shape] {
                     auto data = std::make_shared<Buffers>(count_of(shape));
                     data->out = {};
                     auto tiling = std::make_shared<Tiling>(granularity.tiling(shape));
                     Work work;
                     work.check = [=] {
                       const std::vector<int64_t> small_shape{kCheckRows, 4096};
                       const Buffers small(count_of(small_shape));
                       const Tiling small_tiling = granularity.tiling(small_shape);
                       const std::vector<Range> got = tile_ranges(small.in, small_tiling);
                       std::vector<Range> expected(got.size(), {INFINITY, -INFINITY});
                       for (int64_t i = 0; i < std::ssize(small.in); ++i) {
                         Range& range = expected[reference::tile_of(small_tiling, i)];
                         range = {std::min(range.min, small.in[i]), std::max(range.max, small.in[i])};
                       }
                       for (size_t i = 0; i < got.size(); ++i) {
                         if (got[i].min == expected[i].min && got[i].max == expected[i].max) continue;
                         fail(ErrorCode::Internal, name, "tile {} is [{}, {}]; expected [{}, {}]", i, got[i].min,
                              got[i].max, expected[i].min, expected[i].max);
                       }
                     };
                     auto kept = std::make_shared<std::vector<float>>(threads);
                     work.kaon = [=] { (*kept)[0] = tile_ranges(data->in, *tiling)[0].min; };
                     work.peer = [=] {
                       parallel_for(0, threads, 1, [&](int64_t first, int64_t last) {
                         const int64_t n = std::ssize(data->in);
                         for (int64_t i = first; i < last; ++i) {
                           const int64_t begin = n * i / threads, end = n * (i + 1) / threads;
                           (*kept)[i] = sum(data->in.data() + begin, end - begin);
                         }
                       });
                     };
                     return work;
                   }});
}

void add_all(Cases& cases) {
  for (const Size& size : kSizes) {
    for (const int threads : {1, 2}) {
      for (const bool in_place : {false, true}) {
        for (const Granularity& granularity : {kPerTensor, kPerChannel}) {
          add_fake_quantize(cases, size, threads, "int8", granularity, Symmetry::Symmetric, in_place);
        }
      }
      add_fake_quantize(cases, size, threads, "int8", kLastAxis, Symmetry::Symmetric, false);
      add_fake_quantize(cases, size, threads, "uint8", kPerTensor, Symmetry::Asymmetric, false);
      add_fake_quantize(cases, size, threads, "int4", kGroup32, Symmetry::Symmetric, false);
      add_fake_quantize(cases, size, threads, "uint4", kGroup32, Symmetry::Asymmetric, false);
      add_fake_quantize(cases, size, threads, "uint4", kGroup128, Symmetry::Asymmetric, false);
      add_fake_quantize(cases, size, threads, "int16", kPerTensor, Symmetry::Symmetric, false);
      for (const char* name : {"fp8_e4m3", "fp8_e5m2", "fp4_e2m1", "float16", "bfloat16"}) {
        add_fake_quantize(cases, size, threads, name, kPerTensor, Symmetry::Symmetric, false);
      }
      add_fake_quantize(cases, size, threads, "fp8_e4m3", kPerChannel, Symmetry::Symmetric, false);
      for (const char* name : {"mxfp4", "mxfp6_e2m3", "mxfp8_e4m3", "mxint8", "nvfp4", "bfp16"}) {
        add_blocks(cases, size, threads, name, 1);
      }
      add_blocks(cases, size, threads, "mxfp4", 0);
      for (const Granularity& granularity : {kPerTensor, kPerChannel, kLastAxis, kGroup32}) {
        add_min_max(cases, size, threads, granularity);
      }
    }
  }
}

const bool kAdded = bench::add(add_all);

}  // namespace

}  // namespace kaon
