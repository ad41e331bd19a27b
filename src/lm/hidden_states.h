#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "base/spill.h"
#include "engine/engine.h"
#include "graph/dataset.h"
#include "lm/language_model.h"

namespace kaon::lm {

/// What lies between two parts of a language model for all windows of a text: [windows, tokens, width], in memory or
/// beyond a limit in a temporary file. As a dataset it is the input "hidden" of the part that follows.
class HiddenStates : public Dataset {
 public:
  /// Runs the embedding on all of `data`, whose windows must have one length. `in_memory` is in bytes.
  HiddenStates(Engine embedding, const Dataset& data, int64_t batch, int64_t in_memory);

  /// Runs a block on its inputs.
  using Run = std::function<std::vector<Tensor>(const TensorMap& inputs)>;
  /// Replaces the states by what a block makes of them, at_once(most) windows at a time.
  void advance(const Run& block, int64_t most);

  /// How many windows to run at once where up to `most` may be: more than some hundred rows make no product faster, and
  /// what lies between products would leave the caches.
  int64_t at_once(int64_t most) const;

  int64_t size() const override { return windows_; }
  bool has_labels() const override { return false; }
  Batch read(int64_t first, int64_t count) const override;

 private:
  void write(int64_t first, const Tensor& states);
  std::span<float> part(int64_t first, int64_t count) const;

  int64_t windows_ = 0;
  int64_t tokens_ = 0;
  int64_t width_ = 0;
  SpillBuffer states_;
};

}  // namespace kaon::lm
