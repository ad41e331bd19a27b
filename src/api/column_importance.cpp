#include "api/column_importance.h"

#include "engine/engine.h"
#include "graph/layer.h"
#include "graph/pass.h"
#include "lm/hidden_states.h"

namespace kaon {

namespace {

struct Squares {
  std::vector<double> sums;
  int64_t rows = 0;

  void add(const Tensor& read) {
    const auto width = static_cast<size_t>(read.shape().back());
    sums.resize(width);
    const std::span<const float> values = read.as<float>();
    for (size_t i = 0; i < values.size(); ++i) {
      sums[i % width] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
    rows += read.size() / static_cast<int64_t>(width);
  }
};

}  // namespace

std::map<std::string, std::vector<float>> column_importance(const lm::LanguageModel& model, const Dataset& data,
                                                            int64_t batch, int64_t in_memory, Progress& progress) {
  std::map<std::string, std::vector<float>> found;
  lm::HiddenStates states(Engine(model.embedding()), data, batch, in_memory);
  PassContext context;
  context.evaluate = evaluate_node;
  const int64_t blocks = model.facts().layers;
  progress.begin("importance", blocks + 1);
  for (int64_t i = 0; i <= blocks; ++i) {
    Model part = i < blocks ? model.block(i) : model.head();
    run_passes(part, context);
    std::map<std::string, Squares> squares;  // by value
    Hooks hooks;
    const std::vector<Layer> products = layers(part.graph);
    for (const Layer& layer : products) {
      const auto [seen, is_new] = squares.try_emplace(layer.input);
      if (!is_new) continue;
      hooks.watch_tensor(layer.input, [&to = seen->second](const Shown& shown) { to.add(shown.tensor); });
    }
    if (i < blocks) {
      Engine block(std::move(part));
      states.advance([&](const TensorMap& inputs) { return block.run(inputs, hooks); }, batch);
    } else {
      Engine head(std::move(part));
      const int64_t at_once = states.at_once(batch);
      for (int64_t first = 0; first < states.size(); first += at_once) {
        head.run(states.read(first, std::min(at_once, states.size() - first)).inputs, hooks);
      }
    }
    for (const Layer& layer : products) {
      const Squares& seen = squares.at(layer.input);
      std::vector<float>& mean = found[layer.name];
      for (const double sum : seen.sums) mean.push_back(static_cast<float>(sum / static_cast<double>(seen.rows)));
    }
    progress.at(i + 1);
  }
  progress.end();
  return found;
}

}  // namespace kaon
