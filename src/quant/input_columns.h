#pragma once
#include <span>
#include <vector>

#include "engine/pixels.h"
#include "quant/layer_product.h"

namespace kaon {

/// What a layer reads, cut into the columns it multiplies. The numbers of a column stand as [element of the window,
/// channel], whatever the order of the weight.
class InputColumns {
 public:
  InputColumns(const Pixels& x, const LayerProduct& product);
  InputColumns(const Tensor& x, const LayerProduct& product);

  /// Rows of a matrix that are samples each count as one sample with so many positions.
  bool joined() const { return joined_; }
  int64_t samples() const { return joined_ ? 1 : x_.shape[0]; }
  int64_t positions() const { return output_[0] * output_[1]; }
  int64_t channels() const { return x_.shape[1]; }

  /// Which of a sample's pixels each element of the window sees at each position, [positions, window]; -1: none, it is
  /// beyond the edge.
  std::vector<int64_t> places(std::span<const int64_t> positions) const;
  /// Channels first … first + count - 1 of each of `places`, one after the other, `stride` numbers apart.
  void copy(int64_t sample, std::span<const int64_t> places, int64_t first, int64_t count, float* to,
            int64_t stride) const;

 private:
  Pixels x_;
  const LayerProduct& product_;
  bool joined_ = false;
  int64_t size_[2] = {1, 1};
  int64_t begin_[2] = {0, 0};
  int64_t output_[2] = {1, 1};
};

/// Which positions of a sample are looked at: all, or one of each of `wanted` equal stretches.
std::vector<int64_t> chosen_positions(int64_t count, int64_t sample, int64_t wanted);

/// Channels that are worked on at once.
inline constexpr int64_t kLanes = 16;

/// For `count` ≤ kLanes channels that stand kLanes apart in a and b:
/// sums[pair · stride + c] += Σ a[position, i, c] · b[position, j, c] for every pair (i, j) of elements of a window;
/// `symmetric`: j ≤ i alone.
void add_window_products(const float* a, const float* b, int64_t positions, int64_t window, bool symmetric,
                         double* sums, int64_t stride, int64_t count);

/// sums[i · stride + c] += Σ a[position, i, c], as above.
void add_window_sums(const float* a, int64_t positions, int64_t window, double* sums, int64_t stride, int64_t count);

/// sums[i] += Σ values[row · stride + i]
void add_rows(const float* values, int64_t rows, int64_t stride, int64_t cols, double* sums);

}  // namespace kaon
