#pragma once
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/linalg.h"
#include "engine/pixels.h"
#include "quant/calibrate.h"
#include "quant/layer_product.h"

namespace kaon {

class InputColumns;

/// Sums over the columns x that a layer multiplies, and over the columns y it multiplies in another network, in pairs.
struct InputStatistics {
  std::vector<Matrix> gram;        ///< Σ x·xᵀ of every group
  std::vector<Matrix> cross;       ///< Σ y·xᵀ of every group, where there is another network
  std::vector<double> mean;        ///< of x, all groups one after the other
  std::vector<double> other_mean;  ///< of y
  int64_t count = 0;               ///< columns that were seen

  void add(const InputStatistics& other);
};

/// Takes columns in, so that sums do not depend on how samples are batched.
class InputSums {
 public:
  /// Of the positions that a sample has, at most so many are looked at where a layer multiplies `cols` numbers at once:
  /// others of every sample, spread evenly. What few numbers have to do with each other few positions tell.
  static constexpr int64_t most_positions(int64_t cols) { return std::clamp<int64_t>(4 * cols, 32, 256); }

  explicit InputSums(const LayerProduct& product, bool paired = false);

  /// What the layer reads, samples from `first` on; `other`: what it reads in the other network.
  void add(const Tensor& x, int64_t first, const Tensor* other = nullptr);
  /// The same for a convolution, as it lies in memory.
  void add(const Pixels& x, int64_t first, const Pixels* other = nullptr);
  InputStatistics finish();

 private:
  /// Every channel is a group of its own.
  bool depthwise() const { return product_.convolution && product_.groups > 1 && product_.cols == window(); }
  bool paired() const { return !sums_.cross.empty(); }
  int64_t window() const { return product_.kernel[0] * product_.kernel[1]; }
  int64_t numbers() const { return product_.groups * product_.cols; }
  void add(const InputColumns& columns, int64_t first, const InputColumns* others);
  void add_depthwise(const InputColumns& x, const InputColumns* other, int64_t sample, std::span<const int64_t> places);
  void copy(const InputColumns& from, int64_t sample, std::span<const int64_t> places, std::vector<float>& to) const;
  std::vector<float> of_group(const std::vector<float>& columns, int64_t group) const;
  void flush();

  LayerProduct product_;
  /// Until finish(): gram has its lower triangle alone, and numbers stand in the order of InputColumns.
  InputStatistics sums_;
  std::vector<float> columns_;  ///< that wait for their products to be taken, [columns, numbers()]
  std::vector<float> others_;
  int64_t filled_ = 0;  ///< columns
  /// Depthwise: sums of the products of every two elements of the window, [pairs, channels].
  Matrix products_;
  Matrix cross_products_;
};

/// Keeps some of the columns that a layer multiplies, from every sample alike.
class ColumnSample {
 public:
  static constexpr int64_t kMost = 256;

  /// `samples` will come in all.
  ColumnSample(const LayerProduct& product, int64_t samples);

  /// What the layer reads of the samples first … first + samples - 1.
  void add(const Tensor& x, int64_t first, int64_t samples);
  /// [groups · cols, columns]
  FloatMatrix finish();

 private:
  LayerProduct product_;
  int64_t each_;
  std::vector<float> columns_;
  int64_t filled_ = 0;
};

/// Whose statistics are wanted: a name for them, the value that is read, and how it is multiplied.
struct StatisticsRequest {
  std::string name;
  std::string value;
  LayerProduct product;
};

/// One pass over `data`, by name; requests for the same share theirs.
std::map<std::string, std::shared_ptr<const InputStatistics>> collect_statistics(
    const Model& model, const std::vector<StatisticsRequest>& requests, const Dataset& data,
    const QuantizeSettings& settings);

}  // namespace kaon
