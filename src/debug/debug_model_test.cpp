// Every number of the report against a second, slow computation from all values of both runs.
#include "debug/debug_model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/engine.h"
#include "quant/networks_test.h"
#include "quant/placement.h"
#include "quant/quantize.h"
#include "quant/schemes.h"
#include "quant/simulate.h"

namespace kaon {
namespace {

constexpr int64_t kBatch = 5;  // the last one is short
constexpr double kClose = 1e-5;

/// x [N, 6, 32] -> MatMul + bias -> Relu -> MatMul -> y [N, 6, 8].
Model token_network() {
  Model model = make_model({make_node("MatMul", {"x", "up.weight"}, {"u"}), make_node("Add", {"u", "up.bias"}, {"a"}),
                            make_node("Relu", {"a"}, {"r"}), make_node("MatMul", {"r", "down.weight"}, {"y"})},
                           {random_constant("up.weight", {32, 64}, 11), random_constant("up.bias", {64}, 12),
                            random_constant("down.weight", {64, 8}, 13)},
                           {make_value("x", {0, 6, 32})}, {"y"});
  model.graph.inputs[0].shape->front() = {std::nullopt, "N"};
  return model;
}

MemoryDataset token_data() { return {{12, 6, 32}, random_values(12 * 6 * 32, 14)}; }

/// All values of a model for one batch.
TensorMap all_values(const Model& model, const TensorMap& inputs) {
  std::vector<std::string> names;
  for (const Node& node : model.graph.nodes) names.insert(names.end(), node.outputs.begin(), node.outputs.end());
  for (const auto& [name, tensor] : inputs) names.push_back(name);
  const Engine engine(model);
  Frame frame = engine.start(inputs, names);
  frame.finish();
  TensorMap values;
  for (const std::string& name : names) values[name] = frame.value(name);
  return values;
}

struct Element {
  float x, q, r, l;
  int64_t channel;
  float low, high;  ///< codes beyond these saturate; ±Inf where the test does not know
};

/// What the quantizer saw, element by element, and how the values lie.
struct Seen {
  std::vector<Element> elements;
};

int64_t axis_of(const QuantizedModel& quantized, const Quantizer& quantizer, int64_t rank) {
  for (const Layer& layer : quantized.layers) {
    for (const Served& served : quantizer.serves) {
      if (served.layer != layer.name) continue;
      if (quantizer.kind == Slot::Weight) return channel_axis(quantized.model.graph, layer);
      if (layer.op == "Conv") return 1;
    }
  }
  return rank == 4 ? 1 : rank - 1;
}

void add(Seen& seen, const Quantizer& quantizer, const Tensor& x, const Tensor& q, const Tensor& r, int64_t axis) {
  const Shape& shape = x.shape();
  std::vector<float> l(static_cast<size_t>(r.size()));
  if (quantizer.params.scale.empty()) {
    fake_quantize(r.as<float>(), l, shape, quantizer.spec);
  } else {
    fake_quantize(r.as<float>(), l, shape, quantizer.spec, quantizer.params);
  }
  int64_t inner = 1;
  for (size_t i = static_cast<size_t>(axis) + 1; i < shape.size(); ++i) inner *= shape[i];
  const int64_t channels = quantizer.kind == Slot::Bias ? 1 : shape[static_cast<size_t>(axis)];
  for (int64_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t channel = i / inner % channels;
    Element element{x.as<float>()[at], q.as<float>()[at], r.as<float>()[at], l[at], channel, -INFINITY, INFINITY};
    const Format& f = format(quantizer.spec.format);
    if (!quantizer.params.scale.empty() && f.kind == FormatKind::Integer) {
      const size_t tile =
          quantizer.params.scale.size() == 1 ? 0 : static_cast<size_t>(i / inner % shape[static_cast<size_t>(axis)]);
      const double zero = quantizer.params.zero_point.empty() ? 0 : quantizer.params.zero_point[tile];
      const double code = std::nearbyint(element.x / quantizer.params.scale[tile]) + zero;
      const bool outside = code < static_cast<double>(f.integer_min()) || code > static_cast<double>(f.integer_max());
      element.low = outside ? INFINITY : -INFINITY;
    }
    seen.elements.push_back(element);
  }
}

/// Groups and blocks have their limits tested in limits_test.
bool knows_limits(const Quantizer& quantizer) {
  return !quantizer.params.scale.empty() && format(quantizer.spec.format).kind == FormatKind::Integer &&
         (quantizer.spec.granularity == Granularity::PerTensor ||
          quantizer.spec.granularity == Granularity::PerChannel);
}

void expect_close(double value, double expected, const std::string& what) {
  if (std::isinf(expected)) {
    EXPECT_EQ(value, expected) << what;
  } else {
    EXPECT_NEAR(value, expected, kClose * std::max(1e-9, std::fabs(expected))) << what;
  }
}

void check(const QuantizerDebug& made, const Quantizer& quantizer, const Seen& seen, const std::string& what) {
  const auto n = static_cast<double>(seen.elements.size());
  long double io = 0, ref_in = 0, ref_out = 0, square = 0, energy = 0, energy_q = 0, product = 0, shift = 0, mean = 0;
  long double local = 0, cumulative = 0, reference = 0, clip = 0;
  int64_t clipped = 0, zeroed = 0, nonzero = 0;
  double max_abs = 0, low = INFINITY, high = -INFINITY;
  struct Channel {
    double absmax = 0, absolute = 0, energy = 0, error = 0;
    int64_t count = 0;
  };
  std::vector<Channel> channels;
  for (const Element& e : seen.elements) {
    const double error = static_cast<double>(e.q) - e.x;
    io += std::fabs(error) / (std::fabs(static_cast<double>(e.x)) + 1e-12);
    ref_in += std::fabs(static_cast<double>(e.x) - e.r) / (std::fabs(static_cast<double>(e.r)) + 1e-12);
    ref_out += std::fabs(static_cast<double>(e.q) - e.r) / (std::fabs(static_cast<double>(e.r)) + 1e-12);
    square += error * error;
    energy += static_cast<double>(e.x) * e.x;
    energy_q += static_cast<double>(e.q) * e.q;
    product += static_cast<double>(e.q) * e.x;
    shift += error;
    mean += e.x;
    local += std::pow(static_cast<double>(e.l) - e.r, 2);
    cumulative += std::pow(static_cast<double>(e.q) - e.r, 2);
    reference += static_cast<double>(e.r) * e.r;
    max_abs = std::max(max_abs, std::fabs(error));
    low = std::min<double>(low, e.x);
    high = std::max<double>(high, e.x);
    nonzero += e.x != 0;
    zeroed += e.x != 0 && e.q == 0;
    if (e.low == INFINITY) {
      ++clipped;
      clip += error * error;
    }
    if (std::ssize(channels) <= e.channel) channels.resize(static_cast<size_t>(e.channel) + 1);
    Channel& channel = channels[static_cast<size_t>(e.channel)];
    channel.absmax = std::max<double>(channel.absmax, std::fabs(e.x));
    channel.absolute += std::fabs(e.x);
    channel.energy += static_cast<double>(e.x) * e.x;
    channel.error += error * error;
    ++channel.count;
  }
  mean /= n;
  long double second = 0, fourth = 0;
  for (const Element& e : seen.elements) {
    second += std::pow(e.x - static_cast<double>(mean), 2);
    fourth += std::pow(e.x - static_cast<double>(mean), 4);
  }
  expect_close(made.mean_relative_error(), static_cast<double>(io) / n, what + " mean_relative_error");
  expect_close(made.ref_input.mean_relative_error(), static_cast<double>(ref_in) / n, what + " ref_input");
  expect_close(made.ref_output.mean_relative_error(), static_cast<double>(ref_out) / n, what + " ref_output");
  expect_close(made.io.mse(), static_cast<double>(square) / n, what + " mse");
  expect_close(made.io.sqnr_db(), 10 * std::log10(static_cast<double>(energy / square)), what + " sqnr");
  expect_close(made.io.cosine(), static_cast<double>(product / std::sqrt(energy * energy_q)), what + " cosine");
  expect_close(made.io.max_abs(), max_abs, what + " max_abs");
  EXPECT_NEAR(made.bias_shift(), static_cast<double>(shift) / n, 1e-9 + kClose * max_abs) << what;
  EXPECT_EQ(made.input.min, low) << what;
  EXPECT_EQ(made.input.max, high) << what;
  expect_close(made.kurtosis(), static_cast<double>(fourth * n / (second * second)), what + " kurtosis");
  expect_close(made.zeroed(), static_cast<double>(zeroed) / static_cast<double>(nonzero), what + " zeroed");
  expect_close(made.local_error(), std::sqrt(static_cast<double>(local / reference)), what + " local");
  expect_close(made.cumulative_error(), std::sqrt(static_cast<double>(cumulative / reference)), what + " cumulative");
  expect_close(made.clip_error() + made.round_error(), static_cast<double>(square) / n, what + " clip + round");
  if (knows_limits(quantizer)) {
    expect_close(made.clipped(), static_cast<double>(clipped) / n, what + " clipped");
    expect_close(made.clip_error(), static_cast<double>(clip) / n, what + " clip_error");
  }

  ASSERT_EQ(made.channels.size(), channels.size()) << what;
  std::vector<double> absmax, energies;
  for (size_t i = 0; i < channels.size(); ++i) {
    EXPECT_EQ(made.channels[i].absmax(), static_cast<float>(channels[i].absmax)) << what << i;
    expect_close(made.channels[i].abs_mean, channels[i].absolute / static_cast<double>(channels[i].count),
                 what + " channel mean");
    if (channels[i].absmax > 0) absmax.push_back(channels[i].absmax);
    if (channels[i].energy > 0) energies.push_back(channels[i].energy);
  }
  const auto median = [](std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
  };
  expect_close(made.channel_imbalance(), *std::max_element(absmax.begin(), absmax.end()) / median(absmax),
               what + " imbalance");
  std::vector<int64_t> outliers;
  double sum = 0;
  int64_t alive = 0;
  for (size_t i = 0; i < channels.size(); ++i) {
    if (channels[i].absmax > 3 * median(absmax)) outliers.push_back(static_cast<int64_t>(i));
    if (channels[i].energy < 1e-4 * median(energies)) continue;
    sum += channels[i].error / channels[i].energy;
    ++alive;
  }
  EXPECT_EQ(made.outlier_channels(), outliers) << what;
  expect_close(made.channel_error(), std::sqrt(sum / static_cast<double>(alive)), what + " channel_error");

  const auto histogram_of = [&](auto get) {
    std::vector<float> values;
    for (const Element& e : seen.elements) values.push_back(get(e));
    Histogram histogram(QuantizerDebug::kBins);
    histogram.update(values);
    return histogram;
  };
  EXPECT_EQ(made.input_histogram, histogram_of([](const Element& e) { return e.x; })) << what;
  EXPECT_EQ(made.output_histogram, histogram_of([](const Element& e) { return e.q; })) << what;
  if (!quantizer.is_activation()) return;
  EXPECT_EQ(made.reference_histogram, histogram_of([](const Element& e) { return e.r; })) << what;
}

/// Means of |r| over rows and over channels, from one batch's value seen as [outer, rows, channels].
void check_means(const QuantizerDebug& made, const std::vector<Tensor>& references, int64_t axis,
                 const std::string& what) {
  std::map<int64_t, std::pair<double, int64_t>> over_all;
  std::vector<double> rows, channels;
  for (const Tensor& r : references) {
    const Shape& shape = r.shape();
    const std::span<const float> values = r.as<float>();
    const int64_t c = shape[static_cast<size_t>(axis)];
    int64_t inner = 1;
    for (size_t i = static_cast<size_t>(axis) + 1; i < shape.size(); ++i) inner *= shape[i];
    const int64_t places = r.size() / c;
    std::vector<double> by_place(static_cast<size_t>(places));
    const bool by_sample = shape.size() == 3;
    std::map<int64_t, double> by_sample_sums;
    for (int64_t i = 0; i < r.size(); ++i) {
      const int64_t outer = i / (inner * c);
      const int64_t channel = i / inner % c;
      const double value = std::fabs(static_cast<double>(values[static_cast<size_t>(i)]));
      by_place[static_cast<size_t>(outer * inner + i % inner)] += value / static_cast<double>(c);
      if (by_sample) {
        by_sample_sums[outer / shape[1] * c + channel] += value / static_cast<double>(shape[1]);
      } else {
        over_all[channel].first += value;
        ++over_all[channel].second;
      }
    }
    channels.insert(channels.end(), by_place.begin(), by_place.end());
    for (const auto& [key, value] : by_sample_sums) rows.push_back(value);
  }
  for (const auto& [channel, sum] : over_all) rows.push_back(sum.first / static_cast<double>(sum.second));
  const auto expect = [&](const Histogram& histogram, std::vector<double> means, const char* name) {
    std::sort(means.begin(), means.end());
    ASSERT_EQ(histogram.count(), std::ssize(means)) << what << name;
    expect_close(histogram.min(), means.front(), what + name);
    expect_close(histogram.max(), means.back(), what + name);
    // No mean may lie in another bin than its own but for rounding at the edge.
    int64_t below = 0;
    for (size_t i = 0; i < histogram.counts().size(); ++i) {
      below += histogram.counts()[i];
      const double edge = histogram.edge(static_cast<int64_t>(i) + 1);
      const auto low = std::lower_bound(means.begin(), means.end(), edge - kClose * edge) - means.begin();
      const auto high = std::upper_bound(means.begin(), means.end(), edge + kClose * edge) - means.begin();
      EXPECT_TRUE(below >= low && below <= high) << what << name << " at " << edge;
    }
  };
  expect(made.reference_absmean_rows, rows, " absmean over rows");
  expect(made.reference_absmean_channels, channels, " absmean over channels");
}

void check_model(const Model& model, const MemoryDataset& data, const std::string& scheme) {
  const QuantizedModel quantized = quantize(model, scheme_config(scheme), &data);
  DebugOptions options;
  options.act_hist = true;
  options.batch = kBatch;
  const DebugReport report = debug(quantized, data, options);
  EXPECT_EQ(report.samples, data.size());
  EXPECT_FALSE(report.nan.has_value());
  ASSERT_EQ(report.quantizers.size(), quantized.quantizers.size());
  const Model simulated = simulate(quantized);
  std::vector<std::pair<TensorMap, TensorMap>> runs;
  for (int64_t first = 0; first < data.size(); first += kBatch) {
    const TensorMap inputs = data.read(first, std::min(kBatch, data.size() - first)).inputs;
    runs.emplace_back(all_values(quantized.model, inputs), all_values(simulated, inputs));
  }
  int64_t observed = 0;
  for (size_t i = 0; i < quantized.quantizers.size(); ++i) {
    const Quantizer& quantizer = quantized.quantizers[i];
    const QuantizerDebug& made = report.quantizers[i];
    const std::string what = scheme + " " + quantizer.label();
    EXPECT_EQ(made.id, quantizer.id);
    Seen seen;
    std::vector<Tensor> references;
    if (!quantizer.is_activation()) {
      const Tensor& exact = quantized.model.graph.find_initializer(quantizer.tensor)->tensor;
      const Tensor& made_of = simulated.graph.find_initializer(quantized_name(quantizer.tensor, quantizer.id))->tensor;
      add(seen, quantizer, exact, made_of, exact,
          quantizer.kind == Slot::Bias ? 0 : axis_of(quantized, quantizer, exact.rank()));
    }
    for (const auto& [exact, ours] : runs) {
      if (!quantizer.is_activation()) break;
      const std::string after = simulated_value(quantized, quantizer);
      const std::string before = after == quantizer.tensor ? raw_name(after) : quantizer.tensor;
      references.push_back(exact.at(quantizer.tensor));
      add(seen, quantizer, ours.at(before), ours.at(after), references.back(),
          axis_of(quantized, quantizer, references.back().rank()));
      observed += references.back().size();
    }
    check(made, quantizer, seen, what);
    if (quantizer.is_activation()) {
      check_means(made, references, axis_of(quantized, quantizer, references.front().rank()), what);
    }
    EXPECT_FALSE(made.reading.empty());
  }
  EXPECT_EQ(report.observed, observed);

  ErrorMetrics error;
  int64_t same = 0, all = 0;
  for (const auto& [exact, ours] : runs) {
    const Tensor r = exact.at("y"), y = ours.at("y");
    error.update(y.as<float>(), r.as<float>());
    const int64_t classes = r.shape().back();
    for (int64_t at = 0; at < r.size(); at += classes) {
      const auto top = [&](const Tensor& t) {
        const auto row = t.as<float>().subspan(static_cast<size_t>(at), static_cast<size_t>(classes));
        return std::max_element(row.begin(), row.end()) - row.begin();
      };
      same += top(r) == top(y);
      ++all;
    }
  }
  ASSERT_EQ(report.outputs.size(), 1U);
  EXPECT_EQ(report.outputs[0].name, "y");
  expect_close(report.outputs[0].error.sqnr_db(), error.sqnr_db(), scheme + " output");
  expect_close(report.outputs[0].agreement.value(), static_cast<double>(same) / static_cast<double>(all),
               scheme + " agreement");
  EXPECT_FALSE(report.outputs[0].top1.has_value());
  EXPECT_EQ(report.worst_output(), report.outputs.data());
}

/// The first `wrong` samples of a dataset have another label than what the model makes of them, the others that.
class LabelledData : public Dataset {
 public:
  LabelledData(const Model& model, MemoryDataset data, int64_t wrong) : data_(std::move(data)) {
    const Tensor y = Engine(model).run(data_.read(0, data_.size()).inputs)[0];
    const int64_t classes = y.shape()[1];
    for (int64_t i = 0; i < data_.size(); ++i) {
      const auto row = y.as<float>().subspan(static_cast<size_t>(i * classes), static_cast<size_t>(classes));
      const int64_t top = std::max_element(row.begin(), row.end()) - row.begin();
      labels_.push_back(i < wrong ? (top + 1) % classes : top);
    }
  }
  int64_t size() const override { return data_.size(); }
  bool has_labels() const override { return true; }
  Batch read(int64_t first, int64_t count) const override {
    Batch batch = data_.read(first, count);
    const auto part = std::span(labels_).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
    batch.labels = Tensor::of<int64_t>({count}, part);
    return batch;
  }
  void spoil() { labels_[0] = 1000; }

 private:
  MemoryDataset data_;
  std::vector<int64_t> labels_;
};

TEST(Debug, LabelsTellTheAccuracyOfBothModels) {
  const Model model = residual_network();
  LabelledData data(model, residual_data(), 3);
  const QuantizedModel quantized = quantize(model, scheme_config("w8a8"), &data);
  DebugReport report = debug(quantized, data, {.batch = kBatch});
  EXPECT_EQ(report.outputs[0].float_top1, 0.75);
  ASSERT_TRUE(report.outputs[0].top1.has_value());
  EXPECT_NEAR(*report.outputs[0].top1, 0.75, 1 - *report.outputs[0].agreement);
  data.spoil();  // no class: whatever these labels mean, they are not in the way
  report = debug(quantized, data, {.batch = kBatch});
  EXPECT_FALSE(report.outputs[0].top1.has_value());
}

TEST(Debug, EveryNumberOfEverySchemeIsThatOfAllValues) {
  for (const std::string& scheme : schemes().names()) {
    SCOPED_TRACE(scheme);
    check_model(residual_network(), residual_data(), scheme);
    check_model(token_network(), token_data(), scheme);
  }
}

/// Samples for a model that carries a state of two rows from run to run.
class StatefulData : public Dataset {
 public:
  StatefulData() {
    side_.names = {"s"};
    side_.carry = {{"s_next", "s"}};
  }
  int64_t size() const override { return 4; }
  bool has_labels() const override { return false; }
  Batch read(int64_t first, int64_t count) const override {
    const std::vector<float> rows = random_values(count * 8, static_cast<uint64_t>(100 + first));
    return {
        {{"x", Tensor::of<float>({count, 8}, rows)}, {"s", Tensor::of<float>({2, 8}, std::vector<float>(16, 0.1F))}},
        {}};
  }
  const SideInputs& side_inputs() const override { return side_; }

 private:
  SideInputs side_;
};

TEST(Debug, AModelThatCarriesAState) {
  const Model model = make_model(
      {make_node("MatMul", {"x", "w"}, {"u"}),
       make_node("ReduceMax", {"s"}, {"m"}, {{"axes", std::vector<int64_t>{0}, {}}}),
       make_node("Add", {"u", "m"}, {"y"}), make_node("Concat", {"y", "y"}, {"s_next"}, {{"axis", int64_t{0}, {}}})},
      {random_constant("w", {8, 8}, 21)}, {make_value("x", {1, 8}), make_value("s", {2, 8})}, {"y", "s_next"});
  const StatefulData data;
  const QuantizedModel quantized = quantize(model, scheme_config("w8a8"), &data);
  const DebugReport report = debug(quantized, data);
  EXPECT_EQ(report.samples, 4);
  EXPECT_EQ(report.ranked, 4);
  EXPECT_EQ(report.outputs.size(), 2U);
  EXPECT_GT(report.worst_output()->error.count, 0);
}

TEST(Debug, ASharedQuantizerHasARowForEverySlot) {
  const MemoryDataset data = residual_data();
  const QuantizedModel quantized = quantize(residual_network(), scheme_config("w8a8"), &data);
  const DebugReport report = debug(quantized, data);
  size_t slots = 0;
  for (const Quantizer& quantizer : quantized.quantizers) slots += quantizer.serves.size();
  ASSERT_EQ(report.rows.size(), slots);
  EXPECT_GT(slots, quantized.quantizers.size());
  for (size_t i = 1; i < report.rows.size(); ++i) {
    EXPECT_GE(*report.of(report.rows[i - 1]).output_gain, *report.of(report.rows[i]).output_gain);
  }
  const std::vector<const DebugRow*> ordered = report.in_order();
  EXPECT_EQ(ordered.front()->layer, "conv1");
  EXPECT_EQ(ordered.front()->slot, Slot::Input);
  EXPECT_EQ(ordered.back()->layer, "fc");
}

TEST(Debug, LayersAreChosenByPattern) {
  const MemoryDataset data = residual_data();
  const QuantizedModel quantized = quantize(residual_network(), scheme_config("w8a8"), &data);
  DebugOptions options;
  options.layers = "conv*";
  for (const DebugRow& row : debug(quantized, data, options).rows) EXPECT_TRUE(row.layer.starts_with("conv"));
  options.layers = "nothing";
  EXPECT_NE(error_of(ErrorCode::InvalidInput, [&] { debug(quantized, data, options); }).find("nothing"),
            std::string::npos);
}

TEST(Debug, WeightsNeedNoData) {
  const QuantizedModel weights = quantize(residual_network(), scheme_config("w8c"));
  const DebugReport report = debug(weights);
  EXPECT_EQ(report.rows.size(), 3U);
  EXPECT_EQ(report.samples, 0);
  const QuantizedModel all = quantize(residual_network(), scheme_config("w8a8d"));
  EXPECT_NE(error_of(ErrorCode::InvalidConfig, [&] { debug(all); }).find("data"), std::string::npos);
}

TEST(Debug, ACorrectedBiasIsWhatItsQuantizerSees) {
  const MemoryDataset data = residual_data();
  QuantizedModel quantized = quantize(residual_network(), scheme_config("w8a8"), &data);
  std::vector<float> bias = quantized.model.graph.find_initializer("conv1.bias")->tensor.to_float();
  double mean = 0;
  for (float& value : bias) mean += (value += 3) / static_cast<double>(bias.size());
  quantized.rounded["conv1.bias"] = Tensor::of<float>({16}, bias);
  const DebugReport report = debug(quantized, data);
  const auto row =
      std::ranges::find_if(report.rows, [](const DebugRow& r) { return r.layer == "conv1" && r.slot == Slot::Bias; });
  ASSERT_NE(row, report.rows.end());
  const QuantizerDebug& seen = report.quantizers[row->quantizer];
  EXPECT_NEAR(seen.input.mean, mean, 1e-6);
  EXPECT_LT(seen.local_error(), 1e-3);
}

TEST(Debug, AWeightOnItsGridIsComparedWithWhatItWas) {
  const MemoryDataset data = residual_data();
  QuantizedModel quantized = quantize(residual_network(), scheme_config("w4c"));
  const auto error = [&] {
    const DebugReport report = debug(quantized, data);
    const auto row = std::ranges::find_if(report.rows, [](const DebugRow& r) { return r.layer == "conv1"; });
    return report.quantizers[row->quantizer].local_error();
  };
  const double nearest = error();
  const Tensor weight = quantized.model.graph.find_initializer("conv1.weight")->tensor;
  std::vector<float> values(static_cast<size_t>(weight.size()));
  quantized.find("conv1", Slot::Weight)->apply(weight.as<float>(), values, weight.shape());
  quantized.rounded["conv1.weight"] = Tensor::of(weight.shape(), values);
  EXPECT_GT(nearest, 0.01);
  EXPECT_EQ(error(), nearest);
}

TEST(Debug, ValuesInOtherUnitsAreComparedWithTheOriginal) {
  const MemoryDataset data = residual_data();
  QuantizedModel quantized = quantize(residual_network(), scheme_config("w8a8c"), &data);
  const auto cumulative = [&] {
    std::vector<double> errors;
    for (const QuantizerDebug& quantizer : debug(quantized, data).quantizers) {
      errors.push_back(quantizer.cumulative_error());
    }
    return errors;
  };
  const std::vector<double> same = cumulative();
  // The original's conv1 makes half as much, so what the model has is twice that.
  for (const char* name : {"conv1.weight", "conv1.bias"}) {
    Initializer& constant = *quantized.original.graph.find_initializer(name);
    std::vector<float> values = constant.tensor.to_float();
    for (float& value : values) value /= 2;
    constant.tensor = Tensor::of(constant.tensor.shape(), values);
  }
  const Quantizer& output = *quantized.find("conv1", Slot::Output);
  EXPECT_GT(cumulative()[static_cast<size_t>(output.id)], 0.9);
  quantized.rescaled[output.tensor] = {1, std::vector<float>(16, 2.0F)};
  EXPECT_EQ(cumulative()[static_cast<size_t>(output.id)], same[static_cast<size_t>(output.id)]);
}

TEST(Debug, RowsAreRankedByWhatTheOutputsGain) {
  const MemoryDataset data = residual_data();
  Config config = scheme_config("w8c");
  LayerRule coarse;
  coarse.weight = *config.global.weight.spec;
  coarse.weight.spec->format = "int2";
  config.by_name = {{"conv2", coarse}};
  const DebugReport report = debug(quantize(residual_network(), config), data);
  EXPECT_EQ(report.rows.front().layer, "conv2");
  EXPECT_GT(report.of(report.rows.front()).output_gain.value(), 0.9);
  EXPECT_EQ(report.ranked, data.size());
  EXPECT_GT(report.output_error, 0);
  EXPECT_NEAR(report.of(report.rows.front()).output_alone.value(), report.output_error, 0.1 * report.output_error);
}

TEST(Debug, AnErrorIsSplitIntoOwnWeightAndWhatCameBefore) {
  const MemoryDataset data = residual_data();
  Config config = scheme_config("w8a8c");
  LayerRule coarse;
  coarse.weight = *config.global.weight.spec;
  coarse.weight.spec->format = "int2";
  config.by_name = {{"conv1", coarse}};
  const QuantizedModel quantized = quantize(residual_network(), config, &data);
  const DebugReport report = debug(quantized, data);
  const auto output = [&](const std::string& layer) {
    return report.of(*std::ranges::find_if(
        report.rows, [&](const DebugRow& row) { return row.layer == layer && row.slot == Slot::Output; }));
  };
  EXPECT_GT(output("conv1").weight_share(), 0.9);
  EXPECT_LT(output("conv1").inherited_share(), 0.1);
  EXPECT_NE(output("conv1").reading.find("comes from the weight of its own layer"), std::string::npos);
  EXPECT_GT(output("conv2").inherited_share(), 0.9);
  EXPECT_LT(output("conv2").weight_share(), 0.1);
}

TEST(Debug, ADisabledQuantizerLeavesNoRow) {
  const MemoryDataset data = residual_data();
  QuantizedModel quantized = quantize(residual_network(), scheme_config("w8a8"), &data);
  const_cast<Quantizer&>(*quantized.find("conv2", Slot::Weight)).enabled = false;
  const_cast<Quantizer&>(*quantized.find("conv1", Slot::Input)).enabled = false;
  const DebugReport report = debug(quantized, data);
  EXPECT_EQ(report.quantizers.size(), quantized.quantizers.size() - 2);
  for (const DebugRow& row : report.rows) {
    EXPECT_FALSE(row.layer == "conv2" && row.slot == Slot::Weight);
    EXPECT_FALSE(row.layer == "conv1" && row.slot == Slot::Input);
  }
}

TEST(Debug, NoDataIsAnError) {
  const MemoryDataset data = residual_data();
  const QuantizedModel quantized = quantize(residual_network(), scheme_config("w8a8"), &data);
  const MemoryDataset none({0, 16, 6, 6}, {});
  error_of(ErrorCode::InvalidInput, [&] { debug(quantized, none); });
  DebugOptions options;
  options.batch = 0;
  error_of(ErrorCode::InvalidInput, [&] { debug(quantized, data, options); });
}

}  // namespace
}  // namespace kaon
