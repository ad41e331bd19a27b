// Pillow's 8-bit resampling: each pass weighs the covered pixels by a triangle as wide as the shrinking, in 22-bit
// fixed point, and rounds to bytes between the horizontal and the vertical one (Pillow 13 may turn their order around).
#include <algorithm>
#include <cmath>

#include "data/image.h"

namespace kaon {

namespace {

constexpr int kFractionBits = 32 - 8 - 2;  ///< room for the sign and for weights that add up to slightly more than 1
constexpr int32_t kHalf = 1 << (kFractionBits - 1);

/// What the outputs first … first + count - 1 of one axis are made of: `taps` weights each, unused ones 0.
struct Weights {
  int64_t taps = 0;
  std::vector<int64_t> start;
  std::vector<int64_t> used;
  std::vector<int32_t> weight;
};

Weights make_weights(int64_t in_size, int64_t out_size, int64_t first, int64_t count) {
  const double scale = static_cast<double>(in_size) / static_cast<double>(out_size);
  const double support = std::max(scale, 1.0);
  Weights weights;
  weights.taps = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
  weights.weight.resize(static_cast<size_t>(weights.taps * count));
  std::vector<double> exact(static_cast<size_t>(weights.taps));
  for (int64_t i = 0; i < count; ++i) {
    const double center = (static_cast<double>(first + i) + 0.5) * scale;
    const int64_t begin = std::max<int64_t>(static_cast<int64_t>(std::floor(center - support + 0.5)), 0);
    const int64_t end = std::min(static_cast<int64_t>(std::floor(center + support + 0.5)), in_size);
    double sum = 0;
    for (int64_t x = begin; x < end; ++x) {
      const double distance = std::abs((static_cast<double>(x) - center + 0.5) * (1.0 / support));
      exact[static_cast<size_t>(x - begin)] = distance < 1.0 ? 1.0 - distance : 0.0;
      sum += exact[static_cast<size_t>(x - begin)];
    }
    weights.start.push_back(begin);
    weights.used.push_back(end - begin);
    for (int64_t x = 0; x < end - begin; ++x) {
      const double share = exact[static_cast<size_t>(x)] / sum;
      weights.weight[static_cast<size_t>(i * weights.taps + x)] =
          static_cast<int32_t>(std::floor(0.5 + share * (1 << kFractionBits)));
    }
  }
  return weights;
}

uint8_t to_byte(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kFractionBits, 0, 255)); }

template <int kChannels>
void resize_row(const uint8_t* in, uint8_t* out, const Weights& weights) {
  for (size_t i = 0; i < weights.start.size(); ++i) {
    const uint8_t* pixel = in + weights.start[i] * kChannels;
    const int32_t* weight = weights.weight.data() + static_cast<int64_t>(i) * weights.taps;
    int32_t sums[kChannels];
    std::fill_n(sums, kChannels, kHalf);
    for (int64_t x = 0; x < weights.used[i]; ++x, pixel += kChannels) {
      for (int c = 0; c < kChannels; ++c) sums[c] += pixel[c] * weight[x];
    }
    for (int c = 0; c < kChannels; ++c) *out++ = to_byte(sums[c]);
  }
}

/// Columns are independent, so that the inner loops run along a row.
void resize_columns(const uint8_t* in, int64_t row_bytes, uint8_t* out, const Weights& weights) {
  std::vector<int32_t> sums(static_cast<size_t>(row_bytes));
  for (size_t i = 0; i < weights.start.size(); ++i) {
    std::fill(sums.begin(), sums.end(), kHalf);
    for (int64_t y = 0; y < weights.used[i]; ++y) {
      const uint8_t* row = in + (weights.start[i] + y) * row_bytes;
      const int32_t weight = weights.weight[static_cast<size_t>(static_cast<int64_t>(i) * weights.taps + y)];
      for (int64_t x = 0; x < row_bytes; ++x) sums[static_cast<size_t>(x)] += row[x] * weight;
    }
    for (int64_t x = 0; x < row_bytes; ++x) *out++ = to_byte(sums[static_cast<size_t>(x)]);
  }
}

}  // namespace

Image resize_image(const Image& image, int64_t width, int64_t height, const Crop& crop) {
  const Weights across = make_weights(image.width, width, crop.left, crop.width);
  Weights down = make_weights(image.height, height, crop.top, crop.height);
  // Only the rows that the crop needs go through the first pass.
  const int64_t first_row = down.start.front();
  const int64_t end_row = down.start.back() + down.used.back();
  for (int64_t& start : down.start) start -= first_row;

  const int64_t row_bytes = crop.width * image.channels;
  std::vector<uint8_t> narrow(static_cast<size_t>(row_bytes * (end_row - first_row)));
  for (int64_t y = first_row; y < end_row; ++y) {
    const uint8_t* in = image.pixels.data() + y * image.width * image.channels;
    uint8_t* out = narrow.data() + (y - first_row) * row_bytes;
    if (image.channels == 1) {
      resize_row<1>(in, out, across);
    } else {
      resize_row<3>(in, out, across);
    }
  }
  Image out{crop.width, crop.height, image.channels,
            std::vector<uint8_t>(static_cast<size_t>(row_bytes * crop.height))};
  resize_columns(narrow.data(), row_bytes, out.pixels.data(), down);
  return out;
}

}  // namespace kaon
