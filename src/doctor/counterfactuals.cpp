#include "doctor/counterfactuals.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "doctor/cures.h"
#include "graph/stored.h"
#include "numerics/moments.h"
#include "quant/calibrate.h"
#include "quant/placement.h"
#include "quant/quantize.h"

namespace kaon {
namespace {

constexpr int64_t kRecalibrated = 128;
constexpr double kOneSided = 0.4;  ///< mean over root mean square of a channel's errors; 0.87 where all round down
constexpr double kNarrower = 0.6;  ///< of a range: what is left where few values stretched it
constexpr int kSmallerSteps = 4;   ///< so many of them in a step: two bits more
constexpr int kCoarseBits = 4;     ///< up to here, the best range is narrow for want of steps, not for outliers

/// Noise over energy of a channel along `axis`, the mean of all of them.
double relative_noise(std::span<const float> values, const Tensor& exact, int64_t axis) {
  std::vector<float> error(values.begin(), values.end());
  std::ranges::transform(error, exact.as<float>(), error.begin(), std::minus<>());
  ChannelMoments noise, signal;
  noise.update(error, exact.shape(), axis);
  signal.update(exact.as<float>(), exact.shape(), axis);
  double sum = 0;
  int64_t counted = 0;
  for (size_t c = 0; c < signal.channels().size(); ++c) {
    const Moments& x = signal.channels()[c];
    const Moments& e = noise.channels()[c];
    const double energy = x.variance() + x.mean * x.mean;
    if (energy == 0) continue;
    sum += (e.variance() + e.mean * e.mean) / energy;
    ++counted;
  }
  return counted == 0 ? 0 : sum / static_cast<double>(counted);
}

bool is_static(const Quantizer& quantizer) { return needs_data(quantizer) && !quantizer.params.scale.empty(); }

}  // namespace

const Layer* Counterfactuals::layer_of(int64_t id) const {
  const auto& layers = patient_.quantized().layers;
  const std::string& name = quantizer(id).serves.front().layer;
  const auto found = std::ranges::find_if(layers, [&](const Layer& layer) { return layer.name == name; });
  return found == layers.end() ? nullptr : &*found;
}

const QuantizedModel* Counterfactuals::with_algorithm(const std::string& name) {
  if (patient_.as_brought_in().as_brought) return nullptr;  // its quantizers are not those of a config
  const auto found = by_algorithm_.find(name);
  if (found != by_algorithm_.end()) return found->second ? &*found->second : nullptr;
  std::optional<QuantizedModel>& made = by_algorithm_[name];
  Config config = patient_.quantized().config;
  add_algorithm(config, {name});
  try {
    made = patient_.quantize_as({config, false});
  } catch (const Error& error) {
    if (error.code() == ErrorCode::Internal || error.code() == ErrorCode::Io) throw;
  }
  return made ? &*made : nullptr;
}

QuantizedModel Counterfactuals::recalibrated(QuantizedModel model, const Dataset& samples) {
  QuantizeSettings settings;
  settings.batch = patient_.batch();
  settings.progress = patient_.options().progress;
  patient_.count_samples(static_cast<double>(samples.size()));
  calibrate_activations(model, samples, settings);
  return model;
}

const QuantizedModel& Counterfactuals::on_data() {
  if (!on_data_) on_data_ = recalibrated(patient_.quantized(), patient_.first_samples(kRecalibrated));
  return *on_data_;
}

const QuantizedModel& Counterfactuals::least_error() {
  if (!least_error_) {
    QuantizedModel model = patient_.quantized();
    for (Quantizer& quantizer : model.quantizers) {
      if (quantizer.is_activation()) quantizer.observer = {.name = "mse"};
    }
    least_error_ = recalibrated(std::move(model), patient_.calibration());
  }
  return *least_error_;
}

const QuantizedModel& Counterfactuals::by_channel(const std::vector<int64_t>& ids) {
  const auto found = by_channel_.find(ids);
  if (found != by_channel_.end()) return found->second;
  QuantizedModel model = patient_.quantized();
  for (const int64_t id : ids) {
    model.quantizers[static_cast<size_t>(id)].spec.granularity = Granularity::PerChannel;
  }
  const Dataset& calibration = patient_.calibration();
  const Part part(calibration, 0, std::min(calibration.size(), kRecalibrated / patient_.batch() * patient_.batch()));
  return by_channel_[ids] =
             recalibrated(std::move(model), part.size() > 0 ? static_cast<const Dataset&>(part) : calibration);
}

QuantizedModel Counterfactuals::with_smaller_steps(const std::vector<int64_t>& ids) const {
  QuantizedModel model = patient_.quantized();
  for (const int64_t id : ids) {
    Quantizer& own = model.quantizers[static_cast<size_t>(id)];
    if (format(own.spec.format).kind != FormatKind::Integer) continue;
    own.spec.format = format(own.spec.format).is_signed ? "int16" : "uint16";
    for (float& scale : own.params.scale) scale /= kSmallerSteps;
    for (auto& zero_point : own.params.zero_point) zero_point *= kSmallerSteps;
  }
  return model;
}

/// What quantization does to a weight.
Tensor Counterfactuals::error_of(int64_t id) const {
  const Quantizer& own = quantizer(id);
  const Tensor exact = exact_constant(patient_.quantized(), own.tensor);
  std::vector<float> error(static_cast<size_t>(exact.size()));
  own.apply(float_view(constant_of(patient_.quantized(), own.tensor)), error, exact.shape());
  std::ranges::transform(error, exact.as<float>(), error.begin(), std::minus<>());
  return Tensor::of(exact.shape(), error);
}

/// Whether the errors of a weight lean to one side, channel by channel.
bool Counterfactuals::errors_have_a_sign(int64_t id) const {
  const Tensor error = error_of(id);
  ChannelMoments moments;
  moments.update(error.as<float>(), error.shape(), channel_axis(patient_.quantized().model.graph, *layer_of(id)));
  double sum = 0;
  int64_t counted = 0;
  for (const Moments& channel : moments.channels()) {
    const double size = std::sqrt(channel.variance() + channel.mean * channel.mean);
    if (size == 0) continue;
    sum += std::fabs(channel.mean) / size;
    ++counted;
  }
  return counted > 0 && sum / static_cast<double>(counted) > kOneSided;
}

/// The weight as quantized, with errors that have no mean in any channel.
Tensor Counterfactuals::centred_weight(int64_t id) const {
  const Tensor exact = exact_constant(patient_.quantized(), quantizer(id).tensor);
  const Tensor error = error_of(id);
  const int64_t axis = channel_axis(patient_.quantized().model.graph, *layer_of(id));
  ChannelMoments moments;
  moments.update(error.as<float>(), error.shape(), axis);
  const int64_t inner = element_count(std::span(exact.shape()).subspan(static_cast<size_t>(axis) + 1));
  const int64_t channels = exact.shape()[static_cast<size_t>(axis)];
  std::vector<float> values = exact.to_float();
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t channel = static_cast<int64_t>(i) / inner % channels;
    const double mean = moments.channels()[static_cast<size_t>(channel)].mean;
    values[i] += error.as<float>()[i] - static_cast<float>(mean);
  }
  return Tensor::of(exact.shape(), values);
}

/// Whether the quantizer's range is far narrower in `other`; of several, the typical one.
bool Counterfactuals::far_narrower(int64_t id, const QuantizedModel& other) const {
  const std::vector<float>& now = quantizer(id).params.scale;
  const std::vector<float>& then = other.quantizers[static_cast<size_t>(id)].params.scale;
  if (now.empty() || now.size() != then.size()) return false;
  std::vector<float> ratios;
  for (size_t i = 0; i < now.size(); ++i) ratios.push_back(now[i] > 0 ? then[i] / now[i] : 1);
  std::ranges::nth_element(ratios, ratios.begin() + std::ssize(ratios) / 2);
  return ratios[ratios.size() / 2] < kNarrower;
}

/// The weight with a scale for each channel that it makes, or for each that it reads.
std::optional<Tensor> Counterfactuals::finer_weight(int64_t id, bool of_inputs) const {
  const Quantizer& own = quantizer(id);
  const Layer* layer = layer_of(id);
  const Format& f = format(own.spec.format);
  if (layer == nullptr || own.spec.granularity != Granularity::PerTensor || f.kind == FormatKind::Block || is_cast(f)) {
    return std::nullopt;
  }
  const Graph& graph = patient_.quantized().model.graph;
  const Tensor exact = exact_constant(patient_.quantized(), own.tensor);
  TensorSpec spec = own.spec;
  spec.granularity = Granularity::PerChannel;
  spec.axis = of_inputs ? input_axis(graph, *layer) : channel_axis(graph, *layer);
  std::vector<float> values(static_cast<size_t>(exact.size()));
  fake_quantize(exact.as<float>(), values, exact.shape(), spec);
  return Tensor::of(exact.shape(), values);
}

std::vector<Counterfactual> Counterfactuals::of(int64_t id) {
  const Quantizer& own = quantizer(id);
  std::vector<Counterfactual> all;
  if (own.kind == Slot::Weight) {
    const Layer* layer = layer_of(id);
    if (layer != nullptr && errors_have_a_sign(id)) all.push_back({CauseKind::BiasShift, "errors without their mean"});
    // Of the two ways to serve every channel, the one that fits: channels that are read may differ, too. Those have
    // much in common with outliers, so these come between.
    const auto finer = finer_weight(id, false);
    if (finer) {
      // Small channels count as much as large ones, whichever way they lie.
      const Tensor exact = exact_constant(patient_.quantized(), own.tensor);
      const Graph& graph = patient_.quantized().model.graph;
      const auto noise = [&](const Tensor& weight) {
        return relative_noise(weight.as<float>(), exact, channel_axis(graph, *layer)) +
               relative_noise(weight.as<float>(), exact, input_axis(graph, *layer));
      };
      reads_unequal_[id] = noise(*finer_weight(id, true)) < noise(*finer);
    }
    if (finer && !reads_unequal_[id]) all.push_back({CauseKind::WeightChannelImbalance, "a scale for each channel"});
    const bool scaled = !own.params.scale.empty() && !is_cast(format(own.spec.format));
    const bool fine = format(own.spec.format).bits >= kCoarseBits;
    const QuantizedModel* searched = scaled && fine ? with_algorithm("range_search") : nullptr;
    if (searched != nullptr && far_narrower(id, *searched)) {
      all.push_back(
          {CauseKind::WeightOutliers, "a range that serves the layer's output instead of the largest weight"});
    }
    if (finer && reads_unequal_[id]) {
      all.push_back({CauseKind::WeightChannelImbalance, "a scale for each channel that it reads"});
    }
    return all;
  }
  if (!is_static(own)) return all;
  all.push_back({CauseKind::CalibrationMismatch, "the range of the evaluation data"});
  if (format(own.spec.format).bits > kCoarseBits && far_narrower(id, least_error())) {
    all.push_back({CauseKind::ActivationOutliers, "the range of the least squared error"});
  }
  if (own.spec.granularity == Granularity::PerTensor) {
    all.push_back({CauseKind::ActivationChannelImbalance, "a scale for each channel"});
  }
  return all;
}

bool Counterfactuals::apply(CauseKind kind, int64_t id, Question& question) {
  const auto at = static_cast<size_t>(id);
  const Quantizer& own = quantizer(id);
  const auto range_of = [&](const QuantizedModel& other) {
    question.params[id] = other.quantizers[at].params;
    return true;
  };
  switch (kind) {
    case CauseKind::CalibrationMismatch: return range_of(on_data());
    case CauseKind::ActivationOutliers: return range_of(least_error());
    case CauseKind::WeightOutliers: return range_of(*with_algorithm("range_search"));
    case CauseKind::BiasShift:
      question.on[at] = false;
      question.constants[own.tensor] = centred_weight(id);
      return true;
    case CauseKind::WeightChannelImbalance: {
      question.on[at] = false;
      question.constants[own.tensor] = *finer_weight(id, reads_unequal_[id]);
      return true;
    }
    case CauseKind::ActivationChannelImbalance: return false;
    default: question.on[at] = false; return true;  // all that is known: it goes when the quantizer goes
  }
}

}  // namespace kaon
