#include "quant/layer_statistics.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <ranges>
#include <set>

#include "base/error.h"
#include "base/parallel.h"
#include "engine/engine.h"
#include "graph/node_id.h"
#include "quant/input_columns.h"

namespace kaon {
namespace {

constexpr int64_t kColumns = 512;  ///< that wait for their products to be taken

bool is_input(const Graph& graph, const std::string& value) {
  return std::ranges::any_of(graph.inputs, [&](const ValueInfo& input) { return input.name == value; });
}

/// The model as far as it makes what is watched. It has no outputs.
Model up_to(Model model, std::set<std::string> needed) {
  Graph& graph = model.graph;
  std::vector<Node> nodes;
  for (Node& node : std::views::reverse(graph.nodes)) {
    if (std::ranges::none_of(node.outputs, [&](const std::string& value) { return needed.contains(value); })) continue;
    needed.insert(node.inputs.begin(), node.inputs.end());
    for (const auto& subgraph : subgraphs(node)) {
      for (const std::string& value : captured_values(*subgraph)) needed.insert(value);
    }
    nodes.push_back(std::move(node));
  }
  std::ranges::reverse(nodes);
  graph.nodes = std::move(nodes);
  graph.outputs.clear();
  return model;
}

/// Column `group` of `products`, one number for each pair, as a matrix; `symmetric`: its lower triangle.
void take_products(const Matrix& products, int64_t group, bool symmetric, Matrix& to) {
  int64_t pair = 0;
  for (int64_t i = 0; i < to.rows; ++i) {
    for (int64_t j = 0; j < (symmetric ? i + 1 : to.cols); ++j) to(i, j) = products(pair++, group);
  }
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

InputSums::InputSums(const LayerProduct& product, bool paired) : product_(product) {
  for (int64_t group = 0; group < product.groups; ++group) sums_.gram.emplace_back(product.cols, product.cols);
  sums_.mean.resize(static_cast<size_t>(numbers()));
  if (paired) {
    sums_.cross = sums_.gram;
    sums_.other_mean = sums_.mean;
  }
  if (depthwise()) {
    products_ = Matrix(window() * (window() + 1) / 2, product.groups);
    if (paired) cross_products_ = Matrix(window() * window(), product.groups);
    return;
  }
  columns_.resize(static_cast<size_t>(kColumns * numbers()));
  if (paired) others_ = columns_;
}

void InputSums::add(const Pixels& x, int64_t first, const Pixels* other) {
  const InputColumns columns(x, product_);
  if (other == nullptr) return add(columns, first, nullptr);
  const InputColumns others(*other, product_);
  add(columns, first, &others);
}

void InputSums::add(const Tensor& x, int64_t first, const Tensor* other) {
  const InputColumns columns(x, product_);
  if (other == nullptr) return add(columns, first, nullptr);
  const InputColumns others(*other, product_);
  add(columns, first, &others);
}

void InputSums::add(const InputColumns& columns, int64_t first, const InputColumns* others) {
  const int64_t wanted = columns.joined() ? columns.positions() : most_positions(product_.cols);
  for (int64_t sample = 0; sample < columns.samples(); ++sample) {
    const std::vector<int64_t> chosen = chosen_positions(columns.positions(), first + sample, wanted);
    const std::vector<int64_t> places = columns.places(chosen);
    if (depthwise()) {
      add_depthwise(columns, others, sample, places);
      continue;
    }
    for (int64_t from = 0; from < std::ssize(chosen);) {
      const int64_t count = std::min(kColumns - filled_, std::ssize(chosen) - from);
      const auto part =
          std::span(places).subspan(static_cast<size_t>(from * window()), static_cast<size_t>(count * window()));
      copy(columns, sample, part, columns_);
      if (others != nullptr) copy(*others, sample, part, others_);
      filled_ += count;
      from += count;
      if (filled_ == kColumns) flush();
    }
  }
}

void InputSums::copy(const InputColumns& from, int64_t sample, std::span<const int64_t> places,
                     std::vector<float>& to) const {
  constexpr int64_t kNumbers = 1 << 16;  // worth another thread
  const int64_t grain = kLanes * std::max<int64_t>(1, kNumbers / kLanes / std::ssize(places));
  parallel_for(0, from.channels(), grain, [&](int64_t first, int64_t last) {
    from.copy(sample, places, first, last - first, to.data() + filled_ * numbers() + first, from.channels());
  });
}

void InputSums::add_depthwise(const InputColumns& x, const InputColumns* other, int64_t sample,
                              std::span<const int64_t> places) {
  const int64_t channels = product_.groups;
  const int64_t positions = std::ssize(places) / window();
  parallel_for(0, channels, 4 * kLanes, [&](int64_t begin, int64_t end) {
    std::vector<float> own(places.size() * kLanes), others(other == nullptr ? 0 : own.size());
    for (int64_t first = begin; first < end; first += kLanes) {
      const int64_t count = std::min(kLanes, end - first);
      x.copy(sample, places, first, count, own.data(), kLanes);
      add_window_products(own.data(), own.data(), positions, window(), true, &products_(0, first), channels, count);
      add_window_sums(own.data(), positions, window(), &sums_.mean[static_cast<size_t>(first)], channels, count);
      if (other == nullptr) continue;
      other->copy(sample, places, first, count, others.data(), kLanes);
      add_window_products(others.data(), own.data(), positions, window(), false, &cross_products_(0, first), channels,
                          count);
      add_window_sums(others.data(), positions, window(), &sums_.other_mean[static_cast<size_t>(first)], channels,
                      count);
    }
  });
  sums_.count += positions;
}

void InputSums::flush() {
  if (filled_ == 0) return;
  constexpr int64_t kNumbers = 256;
  parallel_for(0, numbers(), kNumbers, [&](int64_t first, int64_t last) {
    add_rows(columns_.data() + first, filled_, numbers(), last - first, &sums_.mean[static_cast<size_t>(first)]);
    if (!paired()) return;
    add_rows(others_.data() + first, filled_, numbers(), last - first, &sums_.other_mean[static_cast<size_t>(first)]);
  });
  const auto add_products = [&](int64_t group, std::span<const float> x, std::span<const float> y) {
    const FloatMatrixView own(x, filled_, product_.cols);
    add_gram(sums_.gram[static_cast<size_t>(group)], own.t());
    if (!paired()) return;
    const FloatMatrix product = multiply(FloatMatrixView(y, filled_, product_.cols).t(), own);
    std::vector<double>& cross = sums_.cross[static_cast<size_t>(group)].data;
    for (size_t i = 0; i < cross.size(); ++i) cross[i] += static_cast<double>(product.data[i]);
  };
  const auto size = static_cast<size_t>(filled_ * numbers());
  if (product_.groups == 1) {
    add_products(0, std::span(columns_).first(size), std::span(others_).first(paired() ? size : 0));
  } else {
    parallel_for(0, product_.groups, 1, [&](int64_t first, int64_t last) {
      for (int64_t group = first; group < last; ++group) {
        add_products(group, of_group(columns_, group), paired() ? of_group(others_, group) : std::vector<float>());
      }
    });
  }
  sums_.count += filled_;
  filled_ = 0;
}

std::vector<float> InputSums::of_group(const std::vector<float>& columns, int64_t group) const {
  const int64_t each = product_.cols / window();  // channels
  std::vector<float> found(static_cast<size_t>(filled_ * product_.cols));
  auto to = found.begin();
  for (int64_t row = 0; row < filled_ * window(); ++row) {
    to = std::copy_n(columns.begin() + (row * product_.groups + group) * each, each, to);
  }
  return found;
}

InputStatistics InputSums::finish() {
  flush();
  const int64_t each = product_.cols / window();
  // Where number i of a group's column, in the order of the weight, stands in ours.
  const auto place = [&](int64_t i) { return i % window() * each + i / window(); };
  const auto in_order = [&](Matrix& matrix) {
    if (window() == 1 || each == 1) return;
    const Matrix ours = matrix;
    for (int64_t i = 0; i < matrix.rows; ++i) {
      for (int64_t j = 0; j < matrix.cols; ++j) matrix(i, j) = ours(place(i), place(j));
    }
  };
  for (int64_t group = 0; group < product_.groups; ++group) {
    Matrix& gram = sums_.gram[static_cast<size_t>(group)];
    if (depthwise()) take_products(products_, group, true, gram);
    mirror_lower(gram);
    in_order(gram);
    if (!paired()) continue;
    Matrix& cross = sums_.cross[static_cast<size_t>(group)];
    if (depthwise()) take_products(cross_products_, group, false, cross);
    in_order(cross);
  }
  for (std::vector<double>* means : {&sums_.mean, &sums_.other_mean}) {
    const std::vector<double> ours = *means;
    for (int64_t i = 0; i < std::ssize(*means); ++i) {
      const int64_t channel = i / window();
      const auto from = static_cast<size_t>(i % window() * product_.groups * each + channel);
      (*means)[static_cast<size_t>(i)] = ours[from] / static_cast<double>(std::max<int64_t>(1, sums_.count));
    }
  }
  return std::move(sums_);
}

ColumnSample::ColumnSample(const LayerProduct& product, int64_t samples)
    : product_(product),
      each_(std::max<int64_t>(1, kMost / std::max<int64_t>(1, samples))),
      columns_(static_cast<size_t>(kMost * product.groups * product.cols)) {}

void ColumnSample::add(const Tensor& x, int64_t first, int64_t samples) {
  const InputColumns columns(x, product_);
  const int64_t positions = columns.samples() * columns.positions() / samples;
  const int64_t channels = columns.channels();
  for (int64_t sample = 0; sample < samples && filled_ < kMost; ++sample) {
    std::vector<int64_t> chosen = chosen_positions(positions, first + sample, each_);
    chosen.resize(static_cast<size_t>(std::min(std::ssize(chosen), kMost - filled_)));
    // Rows of several samples may lie in one axis, those of one in two.
    for (const int64_t position : chosen) {
      const int64_t row = sample * positions + position;
      const int64_t at[] = {row % columns.positions()};
      columns.copy(row / columns.positions(), columns.places(at), 0, channels,
                   columns_.data() + filled_++ * product_.groups * product_.cols, channels);
    }
  }
}

FloatMatrix ColumnSample::finish() {
  const int64_t window = product_.kernel[0] * product_.kernel[1];
  const int64_t channels = product_.groups * product_.cols / window;
  FloatMatrix kept(channels * window, filled_);
  for (int64_t row = 0; row < kept.rows; ++row) {
    const int64_t from = row % window * channels + row / window;
    for (int64_t i = 0; i < filled_; ++i) kept(row, i) = columns_[static_cast<size_t>(i * kept.rows + from)];
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
      const auto add = [&shared, &first](const auto& x, int64_t at) { shared.sums.add(x, first + at); };
      if (shared.product.convolution) {
        hooks.watch_tensor(shared.value, PixelWatcher{add});
      } else {
        hooks.watch_tensor(shared.value, [add](const Shown& shown) { add(shown.tensor, shown.first); });
      }
    }
  }
  std::map<std::string, std::shared_ptr<const InputStatistics>> found;
  if (all.empty()) return found;
  std::set<std::string> watched;
  for (const Shared& shared : all) {
    if (!is_input(model.graph, shared.value)) watched.insert(shared.value);
  }
  std::optional<Engine> engine;
  if (!watched.empty()) engine.emplace(up_to(model, watched));
  const int64_t batch = batch_for(model.graph, settings.batch, data);
  settings.progress->begin("collecting statistics", data.size());
  for (; first < data.size(); first += batch) {
    const Batch samples = data.read(first, std::min(batch, data.size() - first));
    check_finite(samples, first);
    for (Shared* shared : of_inputs) shared->sums.add(samples.inputs.at(shared->value), first);
    if (engine) engine->run(samples.inputs, hooks);
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
