#include "quant/calibrate.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/error.h"
#include "base/parallel.h"
#include "base/stopwatch.h"
#include "engine/engine.h"
#include "graph/finite.h"
#include "graph/stored.h"
#include "numerics/float_blocks.h"
#include "quant/observer.h"

namespace kaon {
namespace {

Quantizer& at_slot(QuantizedModel& quantized, const std::string& layer, Slot slot) {
  return const_cast<Quantizer&>(*quantized.find(layer, slot));
}

/// Throws Numeric where a constant that `quantizer` reads is not finite: no code stands for NaN or Inf.
void expect_finite(const Quantizer& quantizer, const Tensor& tensor) {
  const int64_t at = first_non_finite(tensor);
  if (at < 0) return;
  fail(ErrorCode::Numeric, quantizer.label(), "'{}' holds {} at element {}; a {} must be finite to be quantized",
       quantizer.tensor, float_view(tensor).at(at), to_string(index_at(tensor.shape(), at)), name_of(quantizer.kind));
}

/// Whether calibration brought values, and one of them finite.
struct Met {
  bool any = false;
  bool finite = false;

  void update(FloatView values) {
    any = any || values.size > 0;
    float scratch[kBlock];
    for (int64_t i = 0; !finite && i < values.size; i += kBlock) {
      const int64_t count = std::min(kBlock, values.size - i);
      const float* block = load_floats(values, i, count, scratch);
      finite = std::any_of(block, block + count, [](float value) { return std::isfinite(value); });
    }
  }
};

/// One quantizer while it learns: an observer for the whole value, or one for each of its channels.
class Learner {
 public:
  explicit Learner(Quantizer& quantizer) : quantizer_(quantizer) {
    if (quantizer.spec.granularity == Granularity::PerTensor) add_observer();
  }

  bool by_channel() const { return quantizer_.spec.granularity == Granularity::PerChannel; }
  const Quantizer& quantizer() const { return quantizer_; }

  void see(FloatView values) { see(0, values); }

  void see(const Tensor& tensor) {
    if (!by_channel()) return see(tensor.as<float>());
    const Shape& shape = tensor.shape();
    const int64_t axis = quantizer_.spec.axis < 0 ? quantizer_.spec.axis + tensor.rank() : quantizer_.spec.axis;
    if (axis < 0 || axis >= tensor.rank()) {
      fail(ErrorCode::InvalidConfig, quantizer_.label(), "per_channel on axis {}, but the value has the shape {}",
           quantizer_.spec.axis, to_string(shape));
    }
    const int64_t channels = shape[static_cast<size_t>(axis)];
    while (std::ssize(observers_) < channels) add_observer();
    const int64_t inner = element_count(std::span(shape).subspan(static_cast<size_t>(axis) + 1));
    const int64_t outer = element_count(std::span(shape).first(static_cast<size_t>(axis)));
    const std::span<const float> values = tensor.as<float>();
    std::vector<float> channel(static_cast<size_t>(outer * inner));
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t o = 0; o < outer; ++o) {
        const auto from = values.subspan(static_cast<size_t>((o * channels + c) * inner), static_cast<size_t>(inner));
        std::copy(from.begin(), from.end(), channel.begin() + o * inner);
      }
      see(static_cast<size_t>(c), channel);
    }
  }

  void end_batch() {
    for (const auto& observer : observers_) observer->end_batch();
  }

  void finish(bool allow_non_finite) {
    QuantParams params;
    Range all{INFINITY, -INFINITY};
    for (size_t i = 0; i < met_.size(); ++i) {
      if (!met_[i].any || met_[i].finite || allow_non_finite) continue;
      fail(ErrorCode::Numeric, quantizer_.label(),
           "calibration brought nothing but NaN and Inf to '{}'{}, so it has no range; `kaon debug --nan` finds where "
           "they begin",
           quantizer_.tensor, by_channel() ? fmt::format(", channel {}", i) : "");
    }
    for (const auto& observer : observers_) {
      const ScaleZero chosen = observer->scale();
      params.scale.push_back(chosen.scale);
      params.zero_point.push_back(chosen.zero_point);
      const Range seen = observer->seen();
      all = {std::min(all.min, seen.min), std::max(all.max, seen.max)};
    }
    if (format(quantizer_.spec.format).kind != FormatKind::Integer) params.zero_point.clear();
    const Shape channels{std::ssize(observers_)};
    params.tiling = by_channel() ? Tiling::per_channel(channels, 0) : Tiling::per_tensor(Shape{});
    quantizer_.params = std::move(params);
    quantizer_.observed = all;
  }

 private:
  void add_observer() {
    observers_.push_back(make_observer(quantizer_.observer, quantizer_.spec, quantizer_.label()));
    met_.emplace_back();
  }

  void see(size_t channel, FloatView values) {
    met_[channel].update(values);
    observers_[channel]->update(values);
  }

  Quantizer& quantizer_;
  std::vector<std::unique_ptr<Observer>> observers_;
  std::vector<Met> met_;  ///< one for each observer
};

}  // namespace

bool needs_data(const Quantizer& quantizer) {
  return quantizer.is_activation() && !quantizer.dynamic && learns_scales(format(quantizer.spec.format));
}

void calibrate_activations(QuantizedModel& quantized, const Dataset& data, const QuantizeSettings& settings) {
  const Stopwatch watch;
  const int64_t batch = batch_for(quantized.model.graph, settings.batch, data);
  std::vector<Learner> learners;
  learners.reserve(quantized.quantizers.size());
  for (Quantizer& quantizer : quantized.quantizers) {
    if (needs_data(quantizer)) learners.emplace_back(quantizer);
  }
  Hooks hooks;
  std::vector<Learner*> of_inputs;
  for (Learner& learner : learners) {
    const std::string& value = learner.quantizer().tensor;
    const auto& inputs = quantized.model.graph.inputs;
    if (std::any_of(inputs.begin(), inputs.end(), [&](const ValueInfo& input) { return input.name == value; })) {
      of_inputs.push_back(&learner);
    } else if (learner.by_channel()) {
      hooks.watch_tensor(value, [&learner](const Shown& shown) { learner.see(shown.tensor); });
    } else {
      hooks.watch(value, [&learner](const std::string&, std::span<const float> values) { learner.see(values); });
    }
  }
  Engine engine(quantized.model);
  CarriedState state(data, quantized.model.graph);
  settings.progress->begin("calibrating", data.size());
  for (int64_t first = 0; first < data.size(); first += batch) {
    const Batch samples = data.read(first, std::min(batch, data.size() - first));
    check_finite(samples, first);
    const TensorMap inputs = state.enter(samples);
    for (Learner* learner : of_inputs) {
      const auto input = inputs.find(learner->quantizer().tensor);
      if (input != inputs.end()) learner->see(input->second);
    }
    state.leave(engine.run(inputs, hooks));
    for (Learner& learner : learners) learner.end_batch();
    settings.progress->at(std::min(first + batch, data.size()));
  }
  settings.progress->end();
  parallel_for(0, std::ssize(learners), 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) learners[static_cast<size_t>(i)].finish(settings.allow_non_finite);
  });
  quantized.calibration = {data.size(), watch.seconds()};
}

void calibrate_weights(QuantizedModel& quantized, const QuantizeSettings& settings) {
  for (Quantizer& quantizer : quantized.quantizers) {
    if (quantizer.kind != Slot::Weight) continue;
    const Tensor& weight = find_stored(quantized.model.graph, quantizer.tensor)->tensor;
    if (!settings.allow_non_finite) expect_finite(quantizer, weight);
    const FloatView values = float_view(weight);
    const std::vector<Range> range = tile_ranges(values, Tiling::per_tensor(weight.shape()));
    quantizer.observed = range.front();
    if (has_own_scales(quantizer.spec)) continue;
    quantizer.params = observe_params(values, weight.shape(), quantizer.spec, quantizer.observer, quantizer.label());
  }
}

void calibrate_biases(QuantizedModel& quantized, const QuantizeSettings& settings) {
  constexpr float kLargestCode = 2147483520.0F;  // the largest float32 below 2^31
  const auto for_each_bias = [&](const auto& body) {
    for (Quantizer& quantizer : quantized.quantizers) {
      if (quantizer.kind != Slot::Bias) continue;
      const std::string& layer = quantizer.serves.front().layer;
      body(quantizer, constant_of(quantized, quantizer.tensor), at_slot(quantized, layer, Slot::Weight).params.scale,
           at_slot(quantized, layer, Slot::Input).params.scale.front());
    }
  };
  // Layers may share a weight, so its scale is final only when every bias has been seen.
  for_each_bias([&](Quantizer& quantizer, const Tensor& bias, std::vector<float>& weight_scale, float input_scale) {
    if (!settings.allow_non_finite) expect_finite(quantizer, bias);
    const std::span<const float> values = bias.as<float>();
    for (size_t i = 0; i < values.size(); ++i) {
      float& scale = weight_scale[weight_scale.size() == 1 ? 0 : i];
      scale = std::max(scale, std::fabs(values[i]) / kLargestCode / input_scale);
    }
  });
  for_each_bias(
      [](Quantizer& quantizer, const Tensor& bias, const std::vector<float>& weight_scale, float input_scale) {
        quantizer.params.scale.clear();
        for (const float scale : weight_scale) {
          const float product = scale * input_scale;
          if (!std::isfinite(product) || product == 0) {
            fail(ErrorCode::Numeric, quantizer.label(),
                 "its scale would be the weight's {:g} times the input's {:g}, which no float32 holds; exclude the "
                 "layer, or leave its bias float (\"bias\": null)",
                 scale, input_scale);
          }
          quantizer.params.scale.push_back(product);
        }
        quantizer.params.tiling = tiling_of(quantizer.spec, bias.shape());
        quantizer.observed = tile_ranges(bias.as<float>(), Tiling::per_tensor(bias.shape())).front();
      });
}

}  // namespace kaon
