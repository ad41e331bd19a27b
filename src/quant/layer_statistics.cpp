#include "quant/layer_statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "base/error.h"
#include "base/parallel.h"
#include "engine/engine.h"
#include "graph/node_id.h"

namespace kaon {
namespace {

constexpr int64_t kColumns = 512;  ///< that wait for their products to be taken
constexpr int64_t kSmall = 32;     ///< groups of up to this many columns are multiplied without BLAS

/// What a layer reads, cut into the columns it multiplies.
class Columns {
 public:
  Columns(const Tensor& x, const LayerProduct& product) : x_(x.as<float>()), product_(product) {
    const Shape& shape = x.shape();
    if (!product.convolution) {
      samples_ = x.rank() < 2 ? 1 : shape.front();
      positions_ = x.size() / std::max<int64_t>(1, samples_ * product.cols);
      return;
    }
    samples_ = shape[0];
    channels_ = shape[1];
    size_[0] = shape.size() == 4 ? shape[2] : 1;
    size_[1] = shape.back();
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
    positions_ = output_[0] * output_[1];
  }

  /// Rows of a matrix that are samples each, as one sample with so many positions.
  void join_rows() {
    if (product_.convolution || positions_ != 1) return;
    std::swap(samples_, positions_);
  }

  int64_t samples() const { return samples_; }
  int64_t positions() const { return positions_; }

  /// Column i of `to`, from `at` on, is what `sample` has at position which[i].
  void copy(int64_t sample, std::span<const int64_t> which, FloatMatrix& to, int64_t at) const {
    const int64_t window = product_.kernel[0] * product_.kernel[1];
    // Where in a channel's plane each tap of the window finds each position; -1: beyond its edge.
    std::vector<int64_t> places;
    for (int64_t tap = 0; tap < window && product_.convolution; ++tap) {
      const int64_t down = tap / product_.kernel[1] * product_.dilations[0] - begin_[0];
      const int64_t right = tap % product_.kernel[1] * product_.dilations[1] - begin_[1];
      for (const int64_t position : which) {
        const int64_t y = position / output_[1] * product_.strides[0] + down;
        const int64_t z = position % output_[1] * product_.strides[1] + right;
        const bool inside = y >= 0 && y < size_[0] && z >= 0 && z < size_[1];
        places.push_back(inside ? y * size_[1] + z : -1);
      }
    }
    parallel_for(0, to.rows, std::max<int64_t>(1, 4096 / std::ssize(which)), [&](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) {
        float* out = to.row(row).data() + at;
        if (!product_.convolution) {
          for (size_t i = 0; i < which.size(); ++i) {
            out[i] = x_[static_cast<size_t>((sample * positions_ + which[i]) * product_.cols + row)];
          }
          continue;
        }
        const float* plane = x_.data() + (sample * channels_ + row / window) * size_[0] * size_[1];
        const int64_t* place = places.data() + row % window * std::ssize(which);
        for (size_t i = 0; i < which.size(); ++i) out[i] = place[i] < 0 ? 0.0F : plane[place[i]];
      }
    });
  }

 private:
  std::span<const float> x_;
  const LayerProduct& product_;
  int64_t samples_ = 0;
  int64_t positions_ = 0;
  int64_t channels_ = 0;
  int64_t size_[2] = {1, 1};
  int64_t begin_[2] = {0, 0};
  int64_t output_[2] = {1, 1};
};

/// Which positions of a sample are looked at: all, or one of each of `wanted` equal stretches.
std::vector<int64_t> chosen_positions(int64_t count, int64_t sample, int64_t wanted) {
  const int64_t most = std::min(count, wanted);
  std::vector<int64_t> chosen(static_cast<size_t>(most));
  if (most == count) {
    std::iota(chosen.begin(), chosen.end(), 0);
    return chosen;
  }
  std::mt19937_64 generator(static_cast<uint64_t>(sample));
  for (int64_t i = 0; i < most; ++i) {
    const int64_t begin = i * count / most;
    const auto width = static_cast<uint64_t>((i + 1) * count / most - begin);
    chosen[static_cast<size_t>(i)] = begin + static_cast<int64_t>(width == 1 ? 0 : generator() % width);
  }
  return chosen;
}

/// gram += a·bᵀ of few rows.
void add_small(Matrix& gram, const float* a, const float* b, int64_t count, bool symmetric) {
  for (int64_t i = 0; i < gram.rows; ++i) {
    for (int64_t j = symmetric ? i : 0; j < gram.cols; ++j) {
      float part[16] = {};
      const float* x = a + i * kColumns;
      const float* y = b + j * kColumns;
      int64_t k = 0;
      for (; k + 16 <= count; k += 16) {
        for (int64_t l = 0; l < 16; ++l) part[l] += x[k + l] * y[k + l];
      }
      double sum = 0;
      for (; k < count; ++k) sum += static_cast<double>(x[k] * y[k]);
      for (const float value : part) sum += static_cast<double>(value);
      gram(i, j) += sum;
      if (symmetric) gram(j, i) = gram(i, j);
    }
  }
}

constexpr size_t kLanes = 16;  ///< that a row of kColumns numbers is cut into, for the processor's sake

double sum_of(std::span<const float> values) {
  double part[kLanes] = {};
  for (size_t i = 0; i < values.size(); i += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) part[l] += static_cast<double>(values[i + l]);
  }
  return std::accumulate(part, part + kLanes, 0.0);
}

bool is_input(const Graph& graph, const std::string& value) {
  return std::ranges::any_of(graph.inputs, [&](const ValueInfo& input) { return input.name == value; });
}

}  // namespace

void InputStatistics::add(const InputStatistics& other) {
  const auto add_all = [](std::vector<Matrix>& to, const std::vector<Matrix>& from) {
    for (size_t g = 0; g < to.size(); ++g) {
      std::ranges::transform(to[g].data, from[g].data, to[g].data.begin(), std::plus<>());
    }
  };
  add_all(gram, other.gram);
  add_all(cross, other.cross);
  const double share =
      static_cast<double>(other.count) / static_cast<double>(std::max<int64_t>(1, count + other.count));
  for (size_t i = 0; i < other_mean.size(); ++i) other_mean[i] += (other.other_mean[i] - other_mean[i]) * share;
  for (size_t i = 0; i < mean.size(); ++i) mean[i] += (other.mean[i] - mean[i]) * share;
  count += other.count;
}

InputSums::InputSums(const LayerProduct& product, bool paired)
    : product_(product), columns_(product.groups * product.cols, kColumns) {
  const auto groups = static_cast<size_t>(product.groups);
  sums_.gram.assign(groups, Matrix(product.cols, product.cols));
  if (paired) {
    sums_.cross = sums_.gram;
    others_ = columns_;
  }
  sums_.mean.resize(static_cast<size_t>(columns_.rows));
  sums_.other_mean.resize(static_cast<size_t>(others_.rows));
}

void InputSums::add(const Tensor& x, int64_t first, const Tensor* other) {
  Columns columns(x, product_);
  Columns others(other == nullptr ? x : *other, product_);
  const int64_t wanted = columns.positions() == 1 ? columns.samples() : most_positions(product_.cols);
  columns.join_rows();
  others.join_rows();
  for (int64_t sample = 0; sample < columns.samples(); ++sample) {
    const std::vector<int64_t> chosen = chosen_positions(columns.positions(), first + sample, wanted);
    for (int64_t from = 0; from < std::ssize(chosen);) {
      const int64_t count = std::min(kColumns - filled_, std::ssize(chosen) - from);
      const auto part = std::span(chosen).subspan(static_cast<size_t>(from), static_cast<size_t>(count));
      columns.copy(sample, part, columns_, filled_);
      if (other != nullptr) others.copy(sample, part, others_, filled_);
      filled_ += count;
      from += count;
      if (filled_ == kColumns) flush();
    }
  }
}

void InputSums::add_gram_of(int64_t group) {
  const auto begin = static_cast<size_t>(group * product_.cols * kColumns);
  const auto size = static_cast<size_t>(product_.cols * kColumns);
  Matrix& gram = sums_.gram[static_cast<size_t>(group)];
  const bool paired = !sums_.cross.empty();
  if (product_.cols <= kSmall) {
    add_small(gram, &columns_.data[begin], &columns_.data[begin], filled_, true);
    if (paired) {
      add_small(sums_.cross[static_cast<size_t>(group)], &others_.data[begin], &columns_.data[begin], filled_, false);
    }
    return;
  }
  // Columns that are not filled hold zeros.
  const FloatMatrixView x(std::span<const float>(columns_.data).subspan(begin, size), product_.cols, kColumns);
  add_gram(gram, x);
  if (!paired) return;
  const FloatMatrixView y(std::span<const float>(others_.data).subspan(begin, size), product_.cols, kColumns);
  const FloatMatrix product = multiply(y, x.t());
  Matrix& cross = sums_.cross[static_cast<size_t>(group)];
  for (size_t i = 0; i < cross.data.size(); ++i) cross.data[i] += static_cast<double>(product.data[i]);
}

void InputSums::flush() {
  if (filled_ == 0) return;
  for (FloatMatrix* matrix : {&columns_, &others_}) {
    for (int64_t row = 0; row < matrix->rows; ++row) {
      std::fill(matrix->row(row).begin() + filled_, matrix->row(row).end(), 0.0F);
    }
  }
  parallel_for(0, columns_.rows, 64, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      sums_.mean[static_cast<size_t>(row)] += sum_of(columns_.row(row));
      if (others_.rows > 0) sums_.other_mean[static_cast<size_t>(row)] += sum_of(others_.row(row));
    }
  });
  if (product_.cols <= kSmall) {
    parallel_for(0, product_.groups, 1, [&](int64_t first, int64_t last) {
      for (int64_t group = first; group < last; ++group) add_gram_of(group);
    });
  } else {
    for (int64_t group = 0; group < product_.groups; ++group) add_gram_of(group);
  }
  sums_.count += filled_;
  filled_ = 0;
}

InputStatistics InputSums::finish() {
  flush();
  for (std::vector<double>* means : {&sums_.mean, &sums_.other_mean}) {
    for (double& mean : *means) mean /= static_cast<double>(std::max<int64_t>(1, sums_.count));
  }
  return std::move(sums_);
}

ColumnSample::ColumnSample(const LayerProduct& product, int64_t samples)
    : product_(product),
      each_(std::max<int64_t>(1, kMost / std::max<int64_t>(1, samples))),
      columns_(product.groups * product.cols, kMost) {}

void ColumnSample::add(const Tensor& x, int64_t first, int64_t samples) {
  const Columns columns(x, product_);
  const int64_t positions = columns.samples() * columns.positions() / samples;
  for (int64_t sample = 0; sample < samples && filled_ < kMost; ++sample) {
    std::vector<int64_t> chosen = chosen_positions(positions, first + sample, each_);
    chosen.resize(static_cast<size_t>(std::min(std::ssize(chosen), kMost - filled_)));
    if (!product_.convolution) {
      // Rows of several samples may lie in one axis.
      for (int64_t& position : chosen) position += sample * positions;
    }
    columns.copy(product_.convolution ? sample : 0, chosen, columns_, filled_);
    filled_ += std::ssize(chosen);
  }
}

FloatMatrix ColumnSample::finish() {
  FloatMatrix kept(columns_.rows, filled_);
  for (int64_t row = 0; row < kept.rows; ++row) {
    std::copy_n(columns_.row(row).begin(), filled_, kept.row(row).begin());
  }
  columns_ = {};
  return kept;
}

std::map<std::string, std::shared_ptr<const InputStatistics>> collect_statistics(
    const Model& model, const std::vector<StatisticsRequest>& requests, const Dataset& data,
    const QuantizeSettings& settings) {
  struct Shared {
    std::string value;
    LayerProduct product;
    InputSums sums;
    std::vector<std::string> names;
  };
  std::vector<Shared> all;
  for (const StatisticsRequest& request : requests) {
    LayerProduct product = request.product;
    // Rows and the order of the weight do not matter to what is read.
    product.rows = 1;
    product.cols_first = false;
    const auto known =
        std::ranges::find_if(all, [&](const Shared& s) { return s.value == request.value && s.product == product; });
    if (known != all.end()) {
      known->names.push_back(request.name);
    } else {
      all.push_back({request.value, product, InputSums(product), {request.name}});
    }
  }
  int64_t first = 0;
  Hooks hooks;
  std::vector<Shared*> of_inputs;
  for (Shared& shared : all) {
    if (is_input(model.graph, shared.value)) {
      of_inputs.push_back(&shared);
    } else {
      hooks.watch_tensor(shared.value,
                         [&shared, &first](const Shown& shown) { shared.sums.add(shown.tensor, first + shown.first); });
    }
  }
  std::map<std::string, std::shared_ptr<const InputStatistics>> found;
  if (all.empty()) return found;
  Engine engine(model);
  const int64_t batch = batch_for(model.graph, settings.batch, data);
  settings.progress->begin("collecting statistics", data.size());
  for (; first < data.size(); first += batch) {
    const Batch samples = data.read(first, std::min(batch, data.size() - first));
    check_finite(samples, first);
    for (Shared* shared : of_inputs) shared->sums.add(samples.inputs.at(shared->value), first);
    engine.run(samples.inputs, hooks);
    settings.progress->at(std::min(first + batch, data.size()));
  }
  settings.progress->end();
  for (Shared& shared : all) {
    const auto statistics = std::make_shared<const InputStatistics>(shared.sums.finish());
    for (const std::string& name : shared.names) found[name] = statistics;
  }
  return found;
}

}  // namespace kaon
