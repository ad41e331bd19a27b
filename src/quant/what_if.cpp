#include "quant/what_if.h"

#include <algorithm>

#include "base/error.h"
#include "graph/stored.h"
#include "quant/simulate.h"

namespace kaon {

WhatIf::WhatIf(const QuantizedModel& quantized, const Dataset& data, Options options)
    : quantized_(quantized), data_(data), options_(options) {
  QuantizedModel all = quantized;
  for (Quantizer& quantizer : all.quantizers) quantizer.enabled = true;
  engine_ = std::make_unique<Engine>(simulate(all));
}

Question WhatIf::as_it_is() const {
  Question question;
  for (const Quantizer& quantizer : quantized_.quantizers) question.on.push_back(quantizer.enabled);
  return question;
}

Question WhatIf::all_off() const {
  Question question;
  question.on.resize(quantized_.quantizers.size());
  return question;
}

Variant WhatIf::variant(const Question& question) const {
  if (question.on.size() != quantized_.quantizers.size()) {
    fail(ErrorCode::InvalidInput, "question", "switches {} quantizers; the model has {}", question.on.size(),
         quantized_.quantizers.size());
  }
  Variant variant;
  for (const Quantizer& quantizer : quantized_.quantizers) {
    const bool on = question.on[static_cast<size_t>(quantizer.id)];
    const auto params = question.params.find(quantizer.id);
    const std::string name = quantized_name(quantizer.tensor, quantizer.id);
    if (quantizer.is_activation()) {
      if (!on) variant.off.insert(simulated_value(quantized_, quantizer));
      if (!on || params == question.params.end()) continue;
      const Shape shape{std::ssize(quantizer.params.scale)};
      if (std::ssize(params->second.scale) != shape[0]) {
        fail(ErrorCode::InvalidInput, quantizer.label(), "has {} scales; the question gives {}", shape[0],
             params->second.scale.size());
      }
      variant.constants[name + "|scale"] = Tensor::of(shape, params->second.scale);
      if (!quantizer.params.zero_point.empty()) {
        std::vector<int32_t> zero = params->second.zero_point;
        zero.resize(quantizer.params.zero_point.size());
        variant.constants[name + "|zero_point"] = Tensor::of(shape, zero);
      }
      continue;
    }
    const auto other = question.constants.find(quantizer.tensor);
    const Tensor& exact = other != question.constants.end() ? other->second : constant_of(quantized_, quantizer.tensor);
    if (!on) {
      variant.constants[name] = widened(exact);
    } else if (params != question.params.end() || other != question.constants.end()) {
      Quantizer changed = quantizer;
      if (params != question.params.end()) changed.params = params->second;
      variant.constants[name] = changed.applied(exact);
    }
  }
  const Graph& simulated = engine_->model().graph;
  for (const auto& [name, tensor] : question.constants) {
    if (simulated.find_initializer(name) != nullptr) variant.constants[name] = tensor;
  }
  return variant;
}

void WhatIf::ask(const Question& base, std::span<const Question> questions, const Sink& sink) {
  const int64_t batch = batch_for(quantized_.model.graph, options_.batch, data_);
  ReplaySource source;
  source.batches = (data_.size() + batch - 1) / batch;
  source.read = [&](int64_t index) {
    return data_.read(index * batch, std::min(batch, data_.size() - index * batch)).inputs;
  };
  std::vector<Variant> variants;
  for (const Question& question : questions) variants.push_back(variant(question));
  const int64_t answers = std::ssize(questions) * data_.size();
  int64_t answered = 0;
  options_.progress->begin("asking what if", answers);
  Replay replay(*engine_, {.memory = options_.memory});
  replay.run(source, variant(base), variants,
             [&](size_t question, int64_t index, int64_t first, const std::vector<Tensor>& outputs) {
               sink(question, index * batch + first, outputs);
               if (!outputs.empty() && outputs[0].rank() > 0) answered += outputs[0].shape()[0];
               options_.progress->at(std::min(answered, answers));
             });
  options_.progress->end();
  cost_ = replay.cost();
}

}  // namespace kaon
