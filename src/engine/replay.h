#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace kaon {

/// Data that a Replay goes through, batch by batch.
struct ReplaySource {
  int64_t batches = 0;
  std::function<TensorMap(int64_t batch)> read;
};

/// Asks many variants of a model about the same data. Each runs only what it does not share with the variant that they
/// all start from: the values alive where it parts are kept for all samples, in memory up to a bound, beyond it in a
/// mapped temporary file. Every result is bit for bit what Engine::run gives for that variant.
class Replay {
 public:
  struct Options {
    int64_t memory = int64_t{1} << 30;  ///< bytes of values to keep in memory
  };
  struct Cost {
    int64_t kept_bytes = 0;     ///< most that was kept at a time
    int64_t spilled_bytes = 0;  ///< of that, in a file
    double switch_seconds = 0;  ///< making variants ready, all together
    int64_t shared = 0;         ///< variants that started behind the beginning
    bool interpreted = false;   ///< shapes depend on the data: every variant ran whole
  };
  /// Called for each variant and each piece of the data: the number of the variant, the batch, the place of the piece's
  /// first sample in it, and the outputs. Pieces of one variant and one batch come in order. One call at a time, from
  /// any thread.
  using Sink = std::function<void(size_t variant, int64_t batch, int64_t first, const std::vector<Tensor>& outputs)>;

  explicit Replay(Engine& engine) : Replay(engine, Options()) {}
  Replay(Engine& engine, Options options) : engine_(engine), options_(options) {}

  /// Runs `variants`, each by itself, on all of `source`. They should differ from `base` in few places; the later
  /// these lie in the model, the less is run.
  void run(const ReplaySource& source, const Variant& base, std::span<const Variant> variants, const Sink& sink);
  /// Of the last run.
  const Cost& cost() const { return cost_; }

 private:
  Engine& engine_;
  Options options_;
  Cost cost_;
};

}  // namespace kaon
