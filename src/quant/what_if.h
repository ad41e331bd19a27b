#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/progress.h"
#include "engine/replay.h"
#include "graph/dataset.h"
#include "quant/quantizer.h"

namespace kaon {

/// What if the quantized model were a little different?
struct Question {
  std::vector<bool> on;                   ///< by quantizer: whether it is switched on
  std::map<int64_t, QuantParams> params;  ///< by quantizer: other parameters, as many as it has
  TensorMap constants;                    ///< other constants to go into their quantizers, by name in the model
};

/// Answers many questions about one quantized model on one set of data. Nothing is compiled, traced or packed twice,
/// and each question runs only the part of the model that it changes (Replay).
class WhatIf {
 public:
  struct Options {
    int64_t batch = 8;
    int64_t memory = int64_t{1} << 30;  ///< bytes of intermediate values to keep in memory
    Progress* progress = &no_progress();
  };
  /// The answers to question `question` for samples [first, first + outputs[0].shape()[0]): the model's outputs.
  using Sink = std::function<void(size_t question, int64_t first, const std::vector<Tensor>& outputs)>;

  /// `quantized` and `data` must outlive it.
  WhatIf(const QuantizedModel& quantized, const Dataset& data) : WhatIf(quantized, data, Options()) {}
  WhatIf(const QuantizedModel& quantized, const Dataset& data, Options options);

  /// Every quantizer as it is in the model.
  Question as_it_is() const;
  Question all_off() const;
  /// `base` is what the questions have in common: as_it_is() for what they switch off, all_off() for what they switch
  /// on. Throws InvalidInput where a question does not fit the model.
  void ask(const Question& base, std::span<const Question> questions, const Sink& sink);

  Engine& engine() { return *engine_; }
  /// The question in terms of engine().
  Variant variant(const Question& question) const;
  const Replay::Cost& cost() const { return cost_; }

 private:
  const QuantizedModel& quantized_;
  const Dataset& data_;
  Options options_;
  std::unique_ptr<Engine> engine_;
  Replay::Cost cost_;
};

}  // namespace kaon
