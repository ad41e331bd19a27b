#include "lm/generator.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "numerics/random.h"

namespace kaon::lm {

int64_t choose(std::span<const float> logits, const Sampling& sampling, uint64_t step) {
  if (sampling.temperature <= 0) return std::ranges::max_element(logits) - logits.begin();
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::ranges::stable_sort(
      order, [&](int64_t a, int64_t b) { return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)]; });
  const double top = logits[static_cast<size_t>(order.front())];
  std::vector<double> shares(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    shares[i] = std::exp((logits[static_cast<size_t>(order[i])] - top) / sampling.temperature);
  }
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  size_t kept = 0;
  double sum = 0;
  while (kept < shares.size() && (kept == 0 || sum < sampling.top_p * all)) sum += shares[kept++];
  double left = random_unit(sampling.seed, step) * sum;
  for (size_t i = 0; i < kept; ++i) {
    left -= shares[i];
    if (left < 0) return order[i];
  }
  return order[kept - 1];
}

Generator::Generator(Model model, const Facts& facts)
    : engine_(std::move(model)), facts_(facts), cache_(engine_.model().graph, facts, 1) {}

std::span<const float> Generator::feed(std::span<const int64_t> ids) {
  if (ids.empty()) fail(ErrorCode::InvalidInput, "input_ids", "no tokens to go on from");
  if (tokens() + std::ssize(ids) > facts_.positions) {
    fail(ErrorCode::InvalidInput, "input_ids", "{} tokens are more than the {} that the model was made for",
         tokens() + std::ssize(ids), facts_.positions);
  }
  for (const int64_t id : ids) {
    if (id < 0 || id >= facts_.vocabulary) {
      fail(ErrorCode::InvalidInput, "input_ids", "the token {} is none of {}", id, facts_.vocabulary);
    }
  }
  TensorMap inputs{{"input_ids", Tensor::of<int64_t>({1, std::ssize(ids)}, ids)}};
  cache_.put_into(inputs);
  std::vector<Tensor> outputs = engine_.run(inputs);
  cache_.add(outputs);
  logits_ = std::move(outputs.front());
  return logits_.as<float>().last(static_cast<size_t>(facts_.vocabulary));
}

}  // namespace kaon::lm
