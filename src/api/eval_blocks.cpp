#include <algorithm>
#include <memory>

#include "api/eval.h"
#include "api/language_parts.h"
#include "api/load_model.h"
#include "base/error.h"
#include "base/memory_usage.h"
#include "base/stopwatch.h"
#include "engine/block_engine.h"
#include "eval/evaluate.h"
#include "lm/hidden_states.h"
#include "quant/quantize.h"
#include "quant/simulate.h"

namespace kaon {

namespace {

/// A language model on its way through the text, block by block.
class Walk {
 public:
  Walk(const lm::LanguageModel& model, const Dataset& data, int64_t batch, int64_t in_memory)
      : model_(model), batch_(batch), states_(Engine(model.embedding()), data, batch, in_memory) {}
  Walk(const lm::LanguageModel& model, Model embedding, const Dataset& data, int64_t batch, int64_t in_memory)
      : model_(model), batch_(batch), states_(Engine(std::move(embedding)), data, batch, in_memory) {}

  const lm::HiddenStates& states() const { return states_; }
  /// `block` is an Engine or a BlockEngine.
  template <typename Block>
  void advance(Block&& block) {
    states_.advance([&](const TensorMap& inputs) { return block.run(inputs); }, batch_);
  }
  void finish() {
    BlockEngine block;
    for (int64_t i = 0; i < model_.facts().layers; ++i) {
      block.use(model_.block(i));
      advance(block);
    }
  }

 private:
  const lm::LanguageModel& model_;
  int64_t batch_;
  lm::HiddenStates states_;
};

/// The output of `head` for the samples that evaluate() asks for.
Evaluated head_output(Engine& head, const Walk& walk) {
  return {.outputs = {head.model().graph.outputs.front().name}, .run = [&](const Batch&, int64_t first, int64_t count) {
            return head.run(walk.states().read(first, count).inputs);
          }};
}

}  // namespace

EvalReport eval_by_blocks(const EvalOptions& options) {
  const lm::LanguageModel language = lm::LanguageModel::open(options.model);
  if (!language.facts().causal) {
    fail(ErrorCode::InvalidInput, options.model.string(),
         "{} is an encoder; --memory is for models that predict tokens", language.family_name());
  }
  const bool quantized = asks_to_quantize(options.quant);
  const std::optional<Config> config =
      quantized ? std::optional(for_language_model(config_of(options.quant), language)) : std::nullopt;
  const Model embedding = language.embedding();
  const std::unique_ptr<Dataset> data = open_data(options.data, embedding.graph);
  const bool has_reference = quantized || !options.reference.empty();
  const std::vector<std::string> metrics =
      options.metrics.empty() ? usual_metrics(*data, has_reference) : options.metrics;
  const bool compared = has_reference && std::ranges::any_of(metrics, needs_reference);
  const std::unique_ptr<Dataset> calibration =
      config && needs_calibration(*config) ? open_calibration(options.data, embedding.graph) : nullptr;
  const int64_t streams = 1 + (compared ? 1 : 0) + (calibration != nullptr ? 1 : 0);
  const int64_t in_memory = (options.memory_mb << 20) / streams;
  const int64_t batch = options.data.batch;

  EvalReport report;
  // Quantizes a part where the config asks for it; `inputs` are what reaches it when the float model is calibrated.
  const auto part = [&](Model model, const Dataset* inputs, int64_t at_once) {
    const std::optional<Config> own = config ? config_of_part(*config, model.graph) : std::nullopt;
    if (!own) return model;
    QuantizeSettings settings;
    settings.batch = at_once;
    const QuantizedModel simulated = quantize(std::move(model), *own, inputs, settings);
    report.skipped.insert(report.skipped.end(), simulated.skipped.begin(), simulated.skipped.end());
    report.algorithms.insert(report.algorithms.end(), simulated.algorithms.begin(), simulated.algorithms.end());
    return simulate(simulated);
  };

  const Stopwatch watch;
  std::optional<lm::LanguageModel> other;
  std::optional<Walk> reference, learner;
  options.progress->begin("blocks", language.facts().layers);
  if (compared && !options.reference.empty()) {
    other = lm::LanguageModel::open(options.reference);
    reference.emplace(*other, *data, batch, in_memory).finish();
  } else if (compared) {
    reference.emplace(language, *data, batch, in_memory);
  }
  Walk walk(language, part(embedding, calibration.get(), batch), *data, batch, in_memory);
  if (calibration != nullptr) learner.emplace(language, *calibration, batch, in_memory);
  const lm::HiddenStates* learnt = learner ? &learner->states() : nullptr;
  const int64_t at_once = walk.states().at_once(batch);
  std::optional<BlockEngine> shared(std::in_place);
  for (int64_t i = 0; i < language.facts().layers; ++i) {
    Model block = language.block(i);
    if (!config) {
      shared->use(std::move(block));
      walk.advance(*shared);
    } else {
      // Quantizers are constants that programs are made for, and quantizing needs the memory that an engine would keep.
      walk.advance(Engine(part(block, learnt, at_once)));
      if (reference && !other) reference->advance(Engine(block));
      if (learner) learner->advance(Engine(std::move(block)));
    }
    options.progress->at(i + 1);
  }
  options.progress->end();
  shared.reset();

  Engine head(part(language.head(), learnt, at_once));
  std::optional<Engine> reference_head;
  if (reference) reference_head.emplace((other ? *other : language).head());
  EvalSettings settings;
  settings.batch = at_once;
  settings.progress = options.progress;
  settings.outputs = options.outputs;
  std::optional<Evaluated> expected;
  if (reference) expected = head_output(*reference_head, *reference);
  const EvalResult result =
      evaluate(head_output(head, walk), *data, metrics, expected ? &*expected : nullptr, settings);
  report.samples = result.samples;
  report.metrics = result.metrics;
  report.outputs = result.outputs;
  report.seconds = watch.seconds();
  report.peak_mb = peak_memory_mb();
  return report;
}

}  // namespace kaon
