#include "quant/activation_ranges.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/parallel.h"
#include "engine/engine.h"

namespace kaon {
namespace {

double energy(const FloatMatrix& matrix) {
  const double norm = frobenius_norm(matrix);
  return norm * norm;
}

/// A layer that reads the quantized value.
struct Reading {
  const Layer* layer = nullptr;
  LayerProduct product;
  std::optional<ColumnSample> sample;
  FloatMatrix columns;  ///< [groups · cols, columns]
  FloatMatrix weight;   ///< [all_rows, cols]
  double whole = 0;     ///< Σ of squares of what it makes

  /// What the layer makes of such columns.
  FloatMatrix make(const FloatMatrix& of) const {
    if (product.groups == 1) return multiply(weight, of);
    FloatMatrix made(product.all_rows(), of.cols);
    parallel_for(0, made.rows, 16, [&](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) {
        const std::span<float> out = made.row(row);
        for (int64_t col = 0; col < product.cols; ++col) {
          const std::span<const float> in = of.row(row / product.rows * product.cols + col);
          const float factor = weight(row, col);
          for (size_t i = 0; i < out.size(); ++i) out[i] += factor * in[i];
        }
      }
    });
    return made;
  }
};

/// One quantizer and who reads what it makes.
struct Problem {
  Quantizer* quantizer = nullptr;
  std::vector<Reading> readings;
  bool others = false;  ///< something else reads it too

  double error(const QuantParams& params) const {
    double sum = 0;
    for (const Reading& reading : readings) {
      FloatMatrix lost = reading.columns;
      fake_quantize(lost.data, lost.data, Shape{lost.rows, lost.cols}, quantizer->spec, params);
      std::ranges::transform(lost.data, reading.columns.data, lost.data.begin(), std::minus<>());
      sum += energy(reading.make(lost)) / reading.whole;
      if (others) sum += energy(lost) / std::max(energy(reading.columns), 1e-30);
    }
    return sum;
  }

  QuantParams params(double low, double high) const {
    const auto bound = [](float edge, double share) { return static_cast<float>(static_cast<double>(edge) * share); };
    const TensorSpec& spec = quantizer->spec;
    const Range& seen = quantizer->observed;
    const ScaleZero chosen = choose_scale({bound(seen.min, low), bound(seen.max, high)}, format(spec.format),
                                          spec.symmetric ? Symmetry::Symmetric : Symmetry::Asymmetric, spec.scale_type);
    QuantParams made = quantizer->params;
    made.scale = {chosen.scale};
    if (!made.zero_point.empty()) made.zero_point = {chosen.zero_point};
    return made;
  }
};

/// The best of what is there, of both ends drawn in alike, and of each end alone after that.
class Search {
 public:
  Search(const Problem& problem, const RangeOptions& options)
      : problem_(problem), options_(options), best_(problem.quantizer->params), least_(problem.error(best_)) {
    const Range& seen = problem.quantizer->observed;
    scan([](double share) { return std::pair(share, share); });
    const bool two_ends = !problem.quantizer->spec.symmetric && seen.min < 0 && seen.max > 0;
    if (!two_ends || !found_) return;
    scan([high = high_](double share) { return std::pair(share, high); });
    scan([low = low_](double share) { return std::pair(low, share); });
  }

  const QuantParams& best() const { return best_; }
  bool found() const { return found_; }

 private:
  template <typename Ends>
  void scan(const Ends& ends) {
    constexpr int64_t kCoarse = 4;
    const auto try_step = [&](int64_t step) {
      const double share =
          options_.least + (1 - options_.least) * static_cast<double>(step) / static_cast<double>(options_.steps);
      const auto [low, high] = ends(share);
      const QuantParams params = problem_.params(low, high);
      const double error = problem_.error(params);
      if (!(error < least_)) return false;
      least_ = error;
      best_ = params;
      low_ = low;
      high_ = high;
      found_ = true;
      return true;
    };
    int64_t middle = -1;
    for (int64_t step = 0; step <= options_.steps; step += kCoarse) {
      if (try_step(step)) middle = step;
    }
    if (middle < 0) return;
    for (int64_t by = 1 - kCoarse; by < kCoarse; ++by) {
      if (by != 0 && middle + by >= 0 && middle + by <= options_.steps) try_step(middle + by);
    }
  }

  const Problem& problem_;
  const RangeOptions& options_;
  QuantParams best_;
  double least_ = 0;
  double low_ = 1;
  double high_ = 1;
  bool found_ = false;
};

std::vector<Problem> problems_of(const AlgorithmInput& input) {
  QuantizedModel& quantized = input.quantized;
  const Graph& graph = quantized.model.graph;
  const Uses uses(graph);
  std::vector<Problem> problems;
  std::vector<std::string> left;
  for (Quantizer& quantizer : quantized.quantizers) {
    if (!needs_data(quantizer) || !quantizer.enabled) continue;
    if (quantizer.params.scale.size() != 1) {
      left.push_back(fmt::format("{} (it has a scale for each channel)", quantizer.label()));
      continue;
    }
    Problem problem;
    problem.quantizer = &quantizer;
    for (const Layer& layer : quantized.layers) {
      if (quantized.find(layer.name, Slot::Input) != &quantizer || layer.input != quantizer.tensor) continue;
      const LayerProduct product = product_of(graph, layer);
      if (!product.refused.empty()) continue;
      Reading& reading = problem.readings.emplace_back();
      reading.layer = &layer;
      reading.product = product;
      reading.sample.emplace(product, input.data->size());
      reading.weight = FloatMatrix(product.all_rows(), product.cols);
      const std::vector<float> weight = constant_of(quantized, layer.weight).to_float();
      for (int64_t row = 0; row < reading.weight.rows; ++row) {
        for (int64_t col = 0; col < reading.weight.cols; ++col) {
          reading.weight(row, col) = weight[static_cast<size_t>(product.offset(row, col))];
        }
      }
    }
    if (problem.readings.empty()) continue;
    problem.others =
        quantizer.readers.empty() && (uses.is_output(quantizer.tensor) ||
                                      std::ssize(uses.consumers(quantizer.tensor)) > std::ssize(problem.readings));
    problems.push_back(std::move(problem));
  }
  if (!left.empty()) input.note("left alone: {}", fmt::join(left, ", "));
  if (problems.empty() && left.empty()) input.note("no layer reads a value with a static range");
  return problems;
}

void collect(std::vector<Problem>& problems, const AlgorithmInput& input) {
  const Graph& graph = input.quantized.model.graph;
  const Dataset& data = *input.data;
  int64_t first = 0, samples = 0;
  Hooks hooks;
  std::vector<Reading*> of_inputs;
  for (Problem& problem : problems) {
    for (Reading& reading : problem.readings) {
      const std::string& value = reading.layer->input;
      if (std::ranges::any_of(graph.inputs, [&](const ValueInfo& one) { return one.name == value; })) {
        of_inputs.push_back(&reading);
        continue;
      }
      hooks.watch_tensor(value, [&](const Shown& shown) {
        reading.sample->add(shown.tensor, first + shown.first, shown.samples(samples));
      });
    }
  }
  Engine engine(input.quantized.model);
  CarriedState state(data, graph);
  const int64_t batch = batch_for(graph, input.settings.batch, data);
  input.settings.progress->begin("looking at activations", data.size());
  for (; first < data.size(); first += batch) {
    samples = std::min(batch, data.size() - first);
    const TensorMap inputs = state.enter(data.read(first, samples));
    for (Reading* reading : of_inputs) reading->sample->add(inputs.at(reading->layer->input), first, samples);
    state.leave(engine.run(inputs, hooks));
    input.settings.progress->at(std::min(first + batch, data.size()));
  }
  input.settings.progress->end();
  for (Problem& problem : problems) {
    for (Reading& reading : problem.readings) {
      reading.columns = reading.sample->finish();
      reading.sample.reset();
      reading.whole = std::max(energy(reading.make(reading.columns)), 1e-30);
    }
  }
}

}  // namespace

void search_activation_ranges(const AlgorithmInput& input, const RangeOptions& options) {
  std::vector<Problem> problems = problems_of(input);
  if (problems.empty()) return;
  collect(problems, input);
  input.settings.progress->begin("searching ranges", std::ssize(problems));
  for (Problem& problem : problems) {
    const Search search(problem, options);
    if (search.found()) {
      problem.quantizer->params = search.best();
      ++input.report.changed;
    }
    problem.readings.clear();
    input.settings.progress->at(&problem - problems.data() + 1);
  }
  input.settings.progress->end();
}

}  // namespace kaon
