#include "debug/effects.h"

#include <algorithm>
#include <cmath>

#include "engine/engine.h"
#include "graph/stored.h"
#include "quant/what_if.h"

namespace kaon {
namespace {

/// So many samples tell the loudest quantizers from the others.
constexpr int64_t kSamples = 32;

class FirstSamples : public Dataset {
 public:
  FirstSamples(const Dataset& all, int64_t count) : all_(all), count_(count) {}
  int64_t size() const override { return count_; }
  bool has_labels() const override { return all_.has_labels(); }
  Batch read(int64_t first, int64_t count) const override { return all_.read(first, count); }
  const SideInputs& side_inputs() const override { return all_.side_inputs(); }

 private:
  const Dataset& all_;
  int64_t count_;
};

/// Outputs of the float model for all samples, each as one row a sample.
class Reference {
 public:
  Reference(const Model& model, const Dataset& data, int64_t batch) {
    Engine engine(model);
    for (int64_t first = 0; first < data.size(); first += batch) {
      const int64_t count = std::min(batch, data.size() - first);
      const std::vector<Tensor> outputs = engine.run(data.read(first, count).inputs);
      rows_.resize(outputs.size());
      energy_.resize(outputs.size());
      for (size_t k = 0; k < outputs.size(); ++k) {
        if (!is_float(outputs[k]) || outputs[k].rank() == 0 || outputs[k].shape()[0] != count) continue;
        const Tensor output = widened(outputs[k]);
        const std::span<const float> values = output.as<float>();
        rows_[k].insert(rows_[k].end(), values.begin(), values.end());
        for (const float value : values) energy_[k] += static_cast<double>(value) * value;
      }
    }
  }

  /// Adds Σ(y - y_float)² / Σ y_float² of some samples.
  double error(int64_t first, const std::vector<Tensor>& outputs) const {
    double sum = 0;
    for (size_t k = 0; k < outputs.size(); ++k) {
      if (energy_[k] == 0) continue;
      const Tensor output = widened(outputs[k]);
      const std::span<const float> values = output.as<float>();
      const auto at = static_cast<size_t>(first * (outputs[k].size() / outputs[k].shape()[0]));
      double squares = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        const double difference = static_cast<double>(values[i]) - rows_[k][at + i];
        squares += difference * difference;
      }
      sum += squares / energy_[k];
    }
    return sum;
  }
  bool empty() const {
    return std::ranges::all_of(energy_, [](double energy) { return energy == 0; });
  }

 private:
  std::vector<std::vector<float>> rows_;  ///< by output; empty for one without samples on its first axis
  std::vector<double> energy_;
};

}  // namespace

OutputEffects measure_effects(const QuantizedModel& quantized, const Dataset& data, int64_t wanted,
                              Progress& progress) {
  OutputEffects effects;
  const int64_t batch = batch_for(quantized.model.graph, wanted, data);
  const FirstSamples samples(data, std::min(data.size(), std::max(kSamples / batch, int64_t{1}) * batch));
  const Reference reference(quantized.original, samples, batch);
  if (reference.empty()) return effects;
  effects.samples = samples.size();
  effects.effects.resize(quantized.quantizers.size());
  WhatIf what_if(quantized, samples, {.batch = batch, .progress = &progress});
  for (const bool on : {true, false}) {
    const Question base = on ? what_if.as_it_is() : what_if.all_off();
    std::vector<Question> questions{base};
    std::vector<double*> errors{&effects.all};
    double nothing = 0;
    if (!on) errors[0] = &nothing;
    for (const Quantizer& quantizer : quantized.quantizers) {
      if (!quantizer.enabled) continue;
      OutputEffect& effect = effects.effects[static_cast<size_t>(quantizer.id)];
      questions.push_back(base);
      questions.back().on[static_cast<size_t>(quantizer.id)] = !on;
      errors.push_back(on ? &effect.without : &effect.alone);
    }
    what_if.ask(base, questions, [&](size_t question, int64_t first, const std::vector<Tensor>& outputs) {
      *errors[question] += reference.error(first, outputs);
    });
  }
  return effects;
}

}  // namespace kaon
