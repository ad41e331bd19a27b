#include "patients.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "base/error.h"
#include "engine/engine.h"
#include "graph/build_test.h"
#include "quant/schemes.h"

namespace kaon::clinic {
namespace {

constexpr int64_t kPixels = 3 * Images::kSide * Images::kSide;
constexpr int64_t kLayers = 4;

/// The convolutions: channels in and out.
constexpr int64_t kWidths[kLayers + 1] = {3, 16, 24, 32, 32};

std::string conv(int64_t index) { return "conv" + std::to_string(index); }

Initializer random_weight(const std::string& name, const Shape& shape, std::mt19937_64& random) {
  const auto fan_in = static_cast<float>(element_count(shape) / shape[0]);
  std::normal_distribution<float> normal(0, std::sqrt(2 / fan_in));
  std::vector<float> values(static_cast<size_t>(element_count(shape)));
  for (float& value : values) value = normal(random);
  return make_constant(name, shape, std::move(values));
}

Tensor& weight_of(Model& model, const std::string& name) {
  for (Initializer& one : model.graph.initializers) {
    if (one.name == name) return one.tensor;
  }
  fail(ErrorCode::Internal, name, "no such constant");
}

/// Multiplies what lies at `index` along `axis`.
void scale_channel(Tensor& tensor, int64_t axis, int64_t index, float factor) {
  std::vector<float> values = tensor.to_float();
  const Shape& shape = tensor.shape();
  const int64_t inner = element_count(std::span(shape).subspan(static_cast<size_t>(axis) + 1));
  const int64_t extent = shape[static_cast<size_t>(axis)];
  for (int64_t i = 0; i < std::ssize(values); ++i) {
    if (i / inner % extent == index) values[static_cast<size_t>(i)] *= factor;
  }
  tensor = Tensor::of(shape, values);
}

/// x -> four convolutions with Relu -> mean -> fc, whose rows are the means of the classes.
Model make_network(uint64_t seed, const Images& data) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> small(-0.05F, 0.05F);
  std::vector<Node> nodes;
  std::vector<Initializer> constants;
  std::string value = "x";
  for (int64_t i = 1; i <= kLayers; ++i) {
    const std::string name = conv(i);
    constants.push_back(random_weight(name + ".weight", {kWidths[i], kWidths[i - 1], 3, 3}, random));
    std::vector<float> bias(static_cast<size_t>(kWidths[i]));
    for (float& one : bias) one = small(random);
    constants.push_back(make_constant(name + ".bias", {kWidths[i]}, bias));
    const int64_t stride = i == 3 ? 2 : 1;
    nodes.push_back(make_node(
        "Conv", {value, name + ".weight", name + ".bias"}, {name},
        {{"pads", std::vector<int64_t>{1, 1, 1, 1}, {}}, {"strides", std::vector<int64_t>{stride, stride}, {}}}));
    value = "relu" + std::to_string(i);
    nodes.push_back(make_node("Relu", {name}, {value}));
  }
  nodes.push_back(make_node("GlobalAveragePool", {value}, {"pooled"}));
  nodes.push_back(make_node("Flatten", {"pooled"}, {"features"}));
  const int64_t features = kWidths[kLayers];
  Model model = make_model(nodes, constants, {make_value("x", {0, 3, Images::kSide, Images::kSide})}, {"features"});
  model.graph.inputs[0].shape->front() = {std::nullopt, "N"};
  Engine engine(model);
  const Batch batch = data.read(0, data.size());
  const std::vector<float> rows = engine.run(batch.inputs).at(0).to_float();
  const std::vector<int64_t> labels = batch.labels.to_int64();
  std::vector<double> means(static_cast<size_t>(Images::kClasses * features));
  std::vector<double> counts(Images::kClasses), centre(static_cast<size_t>(features));
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto label = static_cast<size_t>(labels[i / static_cast<size_t>(features)]);
    const size_t f = i % static_cast<size_t>(features);
    means[label * static_cast<size_t>(features) + f] += rows[i];
    if (f == 0) counts[label] += 1;
    centre[f] += rows[i] / static_cast<double>(labels.size());
  }
  std::vector<float> weight, bias;
  double spread = 0;
  for (size_t c = 0; c < counts.size(); ++c) {
    for (size_t f = 0; f < centre.size(); ++f) {
      double& mean = means[c * centre.size() + f];
      mean = mean / counts[c] - centre[f];
      spread += mean * mean / static_cast<double>(counts.size());
    }
  }
  for (size_t c = 0; c < counts.size(); ++c) {
    double offset = 0;
    for (size_t f = 0; f < centre.size(); ++f) {
      const double mean = means[c * centre.size() + f];
      weight.push_back(static_cast<float>(12 * mean / spread));
      offset += 12 * mean / spread * (centre[f] + mean / 2);
    }
    bias.push_back(static_cast<float>(-offset));
  }
  model.graph.nodes.push_back(
      make_node("Gemm", {"features", "fc.weight", "fc.bias"}, {"y"}, {{"transB", int64_t{1}, {}}}));
  model.graph.initializers.push_back(make_constant("fc.weight", {Images::kClasses, features}, weight));
  model.graph.initializers.push_back(make_constant("fc.bias", {Images::kClasses}, bias));
  model.graph.outputs[0].name = "y";
  return model;
}

Spec weight_spec(const std::string& format, Rounding rounding = Rounding::HalfEven) {
  Spec spec;
  spec.format = format;
  spec.granularity = Granularity::PerChannel;
  spec.rounding = rounding;
  return spec;
}

void set_weight(Config& config, const std::string& layer, const Spec& spec) {
  LayerRule rule;
  rule.weight = spec;
  config.by_name.emplace_back(layer, rule);
}

}  // namespace

Images::Images(int64_t samples, uint64_t prototypes, uint64_t seed) {
  std::mt19937_64 shapes(prototypes), random(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> centres(static_cast<size_t>(kClasses * kPixels));
  for (float& value : centres) value = normal(shapes);
  for (int64_t i = 0; i < samples; ++i) {
    const auto label = static_cast<int64_t>(random() % kClasses);
    labels_.push_back(label);
    for (int64_t k = 0; k < kPixels; ++k) {
      values_.push_back(centres[static_cast<size_t>(label * kPixels + k)] + 0.7F * normal(random));
    }
  }
}

Batch Images::read(int64_t first, int64_t count) const {
  const auto values =
      std::span(values_).subspan(static_cast<size_t>(first * kPixels), static_cast<size_t>(count * kPixels));
  const auto labels = std::span(labels_).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
  return {{{"x", Tensor::of<float>({count, 3, kSide, kSide}, values)}}, Tensor::of<int64_t>({count}, labels)};
}

void Images::scale(float factor, int64_t first, int64_t count) {
  for (int64_t i = first * kPixels; i < (first + count) * kPixels; ++i) values_[static_cast<size_t>(i)] *= factor;
}

const std::vector<std::string>& diseases() {
  static const std::vector<std::string> all = {"channels rescaled",
                                               "dead channel",
                                               "loud channels",
                                               "weights rounded down",
                                               "2 bits",
                                               "calibration scaled",
                                               "data scaled",
                                               "freak calibration",
                                               "overflow",
                                               "coarse activations",
                                               "two diseases",
                                               "healthy"};
  return all;
}

Patient make_patient(const std::string& disease, uint64_t seed) {
  std::mt19937_64 random(seed * 7919 + 13);
  const auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  Patient patient;
  patient.name = disease + " " + std::to_string(seed);
  const auto calibration = std::make_shared<Images>(64, seed, 1000 + seed);
  const auto data = std::make_shared<Images>(256, seed, 2000 + seed);
  patient.calibration = calibration;
  patient.data = data;
  patient.model = make_network(seed, Images(256, seed, 3000 + seed));
  patient.config = scheme_config("w8a8c");
  Model& model = patient.model;

  const auto rescale = [&](int64_t at) {
    // Factors between 1/64 and 64; the next layer undoes them.
    for (int64_t c = 0; c < kWidths[at]; ++c) {
      const float factor = std::exp2(static_cast<float>(pick(-60, 60)) / 10);
      scale_channel(weight_of(model, conv(at) + ".weight"), 0, c, factor);
      scale_channel(weight_of(model, conv(at) + ".bias"), 0, c, factor);
      scale_channel(weight_of(model, conv(at + 1) + ".weight"), 1, c, 1 / factor);
    }
    patient.layers.insert(patient.layers.end(), {conv(at), conv(at + 1)});
  };

  if (disease == "channels rescaled") {
    patient.config = scheme_config("w8a8");
    rescale(pick(1, kLayers - 1));
    patient.causes = {CauseKind::WeightChannelImbalance};
  } else if (disease == "dead channel") {
    patient.config = scheme_config("w8a8");
    const int64_t at = pick(1, kLayers - 1), channel = pick(0, kWidths[at] - 1);
    scale_channel(weight_of(model, conv(at) + ".weight"), 0, channel, 0);
    scale_channel(weight_of(model, conv(at) + ".bias"), 0, channel, 0);
    scale_channel(weight_of(model, conv(at + 1) + ".weight"), 1, channel, 200);
    patient.causes = {CauseKind::WeightOutliers, CauseKind::WeightChannelImbalance};
    patient.layers = {conv(at + 1)};
  } else if (disease == "loud channels") {
    // Loud where they are quantized; the factor behind it makes them quiet again.
    const int64_t at = pick(1, kLayers - 1);
    std::vector<float> quiet(static_cast<size_t>(kWidths[at]), 1);
    for (const int64_t channel : {pick(0, 7), pick(8, 15)}) {
      scale_channel(weight_of(model, conv(at) + ".weight"), 0, channel, 400);
      scale_channel(weight_of(model, conv(at) + ".bias"), 0, channel, 400);
      quiet[static_cast<size_t>(channel)] = 1 / 400.0F;
    }
    model.graph.initializers.push_back(make_constant("quiet", {kWidths[at], 1, 1}, quiet));
    const std::string relu = "relu" + std::to_string(at);
    const auto reader = std::ranges::find_if(
        model.graph.nodes, [&](const Node& node) { return node.op == "Conv" && node.inputs[0] == relu; });
    reader->inputs[0] = "quieted";
    model.graph.nodes.insert(reader, make_node("Mul", {relu, "quiet"}, {"quieted"}));
    patient.causes = {CauseKind::ActivationChannelImbalance};
    patient.layers = {conv(at)};
  } else if (disease == "weights rounded down") {
    const int64_t at = pick(2, kLayers);
    set_weight(patient.config, conv(at), weight_spec("int4", Rounding::Floor));
    patient.causes = {CauseKind::BiasShift};
    patient.layers = {conv(at)};
  } else if (disease == "2 bits") {
    const int64_t at = pick(1, kLayers);
    set_weight(patient.config, conv(at), weight_spec("int2"));
    patient.causes = {CauseKind::WeightResolution};
    patient.layers = {conv(at)};
  } else if (disease == "calibration scaled") {
    calibration->scale(pick(0, 1) == 0 ? 0.05F : 60.0F, 0, calibration->size());
    patient.causes = {CauseKind::CalibrationMismatch};
  } else if (disease == "data scaled") {
    data->scale(pick(0, 1) == 0 ? 255.0F : 1 / 255.0F, 0, data->size());
    patient.causes = {CauseKind::DataMismatch};
    patient.verdict = Verdict::DataMismatch;
  } else if (disease == "freak calibration") {
    calibration->scale(100, pick(0, 50), 3);
    patient.causes = {CauseKind::CalibrationMismatch};
  } else if (disease == "overflow") {
    patient.config = scheme_config("fp16");
    const int64_t at = pick(1, kLayers - 1), channel = pick(0, kWidths[at] - 1);
    scale_channel(weight_of(model, conv(at) + ".weight"), 0, channel, 1e6F);
    scale_channel(weight_of(model, conv(at) + ".bias"), 0, channel, 1e6F);
    scale_channel(weight_of(model, conv(at + 1) + ".weight"), 1, channel, 1e-6F);
    patient.causes = {CauseKind::Overflow};
    patient.layers = {conv(at)};
  } else if (disease == "coarse activations") {
    for (SlotRule* slot : {&patient.config.global.input, &patient.config.global.output}) slot->spec->format = "uint2";
    patient.causes = {CauseKind::ActivationResolution};
  } else if (disease == "two diseases") {
    patient.config = scheme_config("w8a8");
    rescale(1);
    set_weight(patient.config, conv(4), weight_spec("int2"));
    patient.layers.push_back(conv(4));
    patient.causes = {CauseKind::WeightChannelImbalance, CauseKind::WeightResolution};
  } else {
    patient.verdict = Verdict::Healthy;
  }
  return patient;
}

}  // namespace kaon::clinic
