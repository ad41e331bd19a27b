#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/plan/runtime.h"
#include "numerics/tensor_spec.h"

namespace kaon {

/// A FakeQuantize that treats every element alike, wherever it lies: one known scale. Zero is always among its values,
/// so the zeros that pad a blocked layout stay zeros. Bit for bit what numerics' fake_quantize gives.
class FlatQuantizer {
 public:
  /// Throws InvalidInput where the format cannot take these parameters.
  FlatQuantizer(const TensorSpec& spec, float scale, int32_t zero_point);

  /// What it does where the values are evenly spaced: round(x / step), half to even, clipped to [low, high], times
  /// step.
  struct Grid {
    float step, low, high;
    bool operator==(const Grid&) const = default;
  };
  std::optional<Grid> grid() const;
  bool operator==(const FlatQuantizer& other) const;

  /// out[i] from in[i], on the calling thread. `out` may be `in`.
  void run(const float* in, float* out, int64_t count) const;

 private:
  const Format& format_;
  QuantParams params_;
  QuantizeOptions options_;
};

/// Work on a whole buffer, element by element and in whatever layout: out = quantize(clip(a + b)).
class QuantizeAction : public Action {
 public:
  struct Clip {
    float low, high;
  };
  struct Steps {
    int32_t addend = -1;  ///< a slot laid out like the input; -1: nothing is added
    std::vector<Clip> clips;
    std::shared_ptr<const FlatQuantizer> quantizer;
  };

  QuantizeAction(Steps steps, int32_t in, int32_t out, int64_t count)
      : steps_(std::move(steps)), in_(in), out_(out), count_(count) {}
  void run(Runtime& runtime) override;

 private:
  Steps steps_;
  int32_t in_, out_;
  int64_t count_;
};

/// Parameters from the data at every run, or several given ones; row-major unless the spec is per tensor.
class QuantizeTensorAction : public Action {
 public:
  QuantizeTensorAction(TensorSpec spec, Shape shape, std::optional<QuantParams> params, int32_t in, int32_t out)
      : spec_(std::move(spec)), shape_(std::move(shape)), params_(std::move(params)), in_(in), out_(out) {}
  void run(Runtime& runtime) override;

 private:
  TensorSpec spec_;
  Shape shape_;
  std::optional<QuantParams> params_;
  int32_t in_, out_;
};

}  // namespace kaon
