#include "quant/input_columns.h"

#include <algorithm>
#include <numeric>

#include "engine/plan/simd.h"

namespace kaon {
namespace {

/// A matrix: the last axis counts as channels, the first as samples.
Pixels rows_of(const Tensor& x, int64_t cols) {
  const int64_t samples = x.rank() < 2 ? 1 : x.shape().front();
  const int64_t rows = x.size() / std::max<int64_t>(1, samples * cols);
  return {.data = x.as<float>().data(),
          .shape = {samples, cols, rows},
          .block = cols,
          .sample_stride = rows * cols,
          .block_stride = 0,
          .position_stride = cols};
}

/// Numbers that look as if by chance, the same ones on every machine (Steele et al. 2014, SplitMix64).
class Chance {
 public:
  explicit Chance(uint64_t seed) : state_(seed) {}
  uint64_t operator()() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }

 private:
  uint64_t state_;
};

/// As many floats as are added up at once; they may lie anywhere.
using Lanes = float __attribute__((vector_size(kLanes * sizeof(float)), aligned(alignof(float)), may_alias));

inline void add_lanes(const Lanes& part, int64_t count, double* sums) {
  for (int64_t l = 0; l < count; ++l) sums[l] += static_cast<double>(part[l]);
}

}  // namespace

InputColumns::InputColumns(const Pixels& x, const LayerProduct& product) : x_(x), product_(product) {
  if (x.shape.size() > 3) size_[0] = x.shape[2];
  size_[1] = x.shape.back();
  for (int axis = 0; axis < 2; ++axis) {
    const int64_t reach = product.dilations[axis] * (product.kernel[axis] - 1) + 1;
    int64_t begin = product.pads[axis];
    int64_t end = product.pads[axis + 2];
    if (!product.auto_pad.empty()) {
      const int64_t wanted = (size_[axis] + product.strides[axis] - 1) / product.strides[axis];
      const int64_t total = std::max<int64_t>(0, (wanted - 1) * product.strides[axis] + reach - size_[axis]);
      begin = product.auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
      end = total - begin;
    }
    begin_[axis] = begin;
    output_[axis] = (size_[axis] + begin + end - reach) / product.strides[axis] + 1;
  }
}

InputColumns::InputColumns(const Tensor& x, const LayerProduct& product)
    : InputColumns(product.convolution ? Pixels::row_major(x.as<float>().data(), x.shape()) : rows_of(x, product.cols),
                   product) {
  joined_ = !product.convolution && positions() == 1;
  if (joined_) size_[1] = output_[1] = x_.shape[0];
}

std::vector<int64_t> InputColumns::places(std::span<const int64_t> positions) const {
  std::vector<int64_t> found;
  found.reserve(positions.size() * static_cast<size_t>(product_.kernel[0] * product_.kernel[1]));
  for (const int64_t position : positions) {
    const int64_t top = position / output_[1] * product_.strides[0] - begin_[0];
    const int64_t left = position % output_[1] * product_.strides[1] - begin_[1];
    for (int64_t i = 0; i < product_.kernel[0]; ++i) {
      const int64_t y = top + i * product_.dilations[0];
      for (int64_t j = 0; j < product_.kernel[1]; ++j) {
        const int64_t z = left + j * product_.dilations[1];
        const bool inside = y >= 0 && y < size_[0] && z >= 0 && z < size_[1];
        found.push_back(inside ? y * size_[1] + z : -1);
      }
    }
  }
  return found;
}

void InputColumns::copy(int64_t sample, std::span<const int64_t> places, int64_t first, int64_t count, float* to,
                        int64_t stride) const {
  for (int64_t channel = first; channel < first + count;) {
    const int64_t beside = std::min(x_.block - channel % x_.block, first + count - channel);
    const float* from = x_.data + sample * x_.sample_stride + channel / x_.block * x_.block_stride + channel % x_.block;
    float* out = to + channel - first;
    for (const int64_t place : places) {
      const float* pixel = from + place * x_.position_stride;
      if (place < 0) {
        std::fill_n(out, beside, 0.0F);
      } else if (beside == kLanes) {
        std::copy_n(pixel, kLanes, out);
      } else {
        std::copy_n(pixel, beside, out);
      }
      out += stride;
    }
    channel += beside;
  }
}

std::vector<int64_t> chosen_positions(int64_t count, int64_t sample, int64_t wanted) {
  const int64_t most = std::min(count, wanted);
  std::vector<int64_t> chosen(static_cast<size_t>(most));
  if (most == count) {
    std::iota(chosen.begin(), chosen.end(), 0);
    return chosen;
  }
  Chance chance(static_cast<uint64_t>(sample));
  for (int64_t i = 0; i < most; ++i) {
    const int64_t begin = i * count / most;
    const auto width = static_cast<uint64_t>((i + 1) * count / most - begin);
    chosen[static_cast<size_t>(i)] = begin + static_cast<int64_t>(chance() % width);
  }
  return chosen;
}

KAON_SIMD void add_window_products(const float* a, const float* b, int64_t positions, int64_t window, bool symmetric,
                                   double* sums, int64_t stride, int64_t count) {
  constexpr int64_t kTogether = 3;  // windows of 3 × 3 come out even
  for (int64_t i = 0; i < window; ++i) {
    const int64_t others = symmetric ? i + 1 : window;
    for (int64_t j = 0; j < others; j += kTogether) {
      // Of the last few some count twice, and are dropped.
      const auto at = [&](int64_t k) { return reinterpret_cast<const Lanes*>(b) + std::min(j + k, others - 1); };
      const Lanes *x = reinterpret_cast<const Lanes*>(a) + i, *y0 = at(0), *y1 = at(1), *y2 = at(2);
      Lanes part[kTogether] = {};
      for (int64_t p = 0; p < positions * window; p += window) {
        part[0] += x[p] * y0[p];
        part[1] += x[p] * y1[p];
        part[2] += x[p] * y2[p];
      }
      for (int64_t k = 0; k < std::min(kTogether, others - j); ++k, sums += stride) add_lanes(part[k], count, sums);
    }
  }
}

KAON_SIMD void add_window_sums(const float* a, int64_t positions, int64_t window, double* sums, int64_t stride,
                               int64_t count) {
  for (int64_t i = 0; i < window; ++i, sums += stride) {
    const Lanes* x = reinterpret_cast<const Lanes*>(a) + i;
    Lanes part = {};
    for (int64_t p = 0; p < positions * window; p += window) part += x[p];
    add_lanes(part, count, sums);
  }
}

KAON_SIMD void add_rows(const float* values, int64_t rows, int64_t stride, int64_t cols, double* sums) {
  constexpr int64_t kTogether = 4;
  int64_t row = 0;
  for (; row + kTogether <= rows; row += kTogether, values += kTogether * stride) {
    const float *a = values, *b = a + stride, *c = b + stride, *d = c + stride;
    for (int64_t i = 0; i < cols; ++i) sums[i] += static_cast<double>((a[i] + b[i]) + (c[i] + d[i]));
  }
  for (; row < rows; ++row, values += stride) {
    for (int64_t i = 0; i < cols; ++i) sums[i] += static_cast<double>(values[i]);
  }
}

}  // namespace kaon
