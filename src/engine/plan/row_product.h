#pragma once
#include <utility>

#include "engine/plan/runtime.h"

namespace kaon {

/// One row, or a few, times a constant matrix: what a token costs. The matrix is read once, where it lies and as it is
/// stored, in float32, float16 or bfloat16.
class RowProductAction : public Action {
 public:
  struct Sizes {
    int64_t rows, inputs, outputs;
  };
  /// `weights` [outputs, inputs] or, unless `transposed`, [inputs, outputs]; `bias` may be undefined.
  RowProductAction(int32_t in, int32_t out, Sizes sizes, at::Tensor weights, at::Tensor bias, bool transposed)
      : in_(in),
        out_(out),
        sizes_(sizes),
        weights_(std::move(weights)),
        bias_(std::move(bias)),
        transposed_(transposed) {}
  void run(Runtime& runtime) override;
  void exchange(const Exchanged& exchanged) override;

 private:
  int32_t in_, out_;
  Sizes sizes_;
  at::Tensor weights_, bias_;
  bool transposed_;
};

}  // namespace kaon
