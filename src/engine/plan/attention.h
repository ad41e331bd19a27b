#pragma once
#include <utility>
#include <vector>

#include "engine/plan/runtime.h"

namespace kaon {

/// Softmax over the columns of row-major rows.
class SoftmaxRowsAction : public Action {
 public:
  SoftmaxRowsAction(int32_t in, int32_t out, int64_t rows, int64_t columns)
      : in_(in), out_(out), rows_(rows), columns_(columns) {}
  void run(Runtime& runtime) override;

 private:
  int32_t in_, out_;
  int64_t rows_, columns_;
};

/// softmax(cap(q·kᵀ·scale) + mask)·v, where cap(x) is softcap·tanh(x / softcap) or, where that is 0, x: for each sample
/// and head, in blocks of queries; what a causal mask hides is left out.
class AttentionAction : public Action {
 public:
  /// Elements from one to the next.
  struct Strides {
    int64_t sample, head, row;
  };
  struct Sizes {
    int64_t samples, heads, key_heads, queries, keys, width, value_width;
  };
  /// Added to the scores (float32), or saying which count (bool); strides are 0 where it is broadcast.
  struct Mask {
    int32_t slot = -1;
    bool flags = false;
    int64_t sample = 0, head = 0, query = 0, key = 0;
  };
  struct Operand {
    int32_t slot;
    Strides strides;
  };
  AttentionAction(Sizes sizes, Operand q, Operand k, Operand v, Operand out, int32_t scratch, float scale,
                  float softcap, bool causal, Mask mask)
      : sizes_(sizes),
        q_(q),
        k_(k),
        v_(v),
        out_(out),
        scratch_(scratch),
        scale_(scale),
        softcap_(softcap),
        causal_(causal),
        mask_(mask) {}
  /// Elements of the scratch slot.
  static int64_t scratch_size(const Sizes& sizes);
  void run(Runtime& runtime) override;

 private:
  void pack_keys(const float* keys, float* packed) const;
  void attend(Runtime& runtime, int64_t sample, int64_t head, int64_t first, float* buffer) const;

  Sizes sizes_;
  Operand q_, k_, v_, out_;
  int32_t scratch_;
  float scale_, softcap_;
  bool causal_;
  Mask mask_;
};

/// Turns pairs of elements of each head by an angle whose cosine and sine are given: [samples or 1, tokens, pairs].
class RotaryAction : public Action {
 public:
  struct Sizes {
    int64_t samples, tokens, heads, width, turned;
  };
  RotaryAction(Sizes sizes, AttentionAction::Operand in, AttentionAction::Operand out, int32_t cosine, int32_t sine,
               bool one_sample, bool interleaved)
      : sizes_(sizes),
        in_(in),
        out_(out),
        cosine_(cosine),
        sine_(sine),
        one_sample_(one_sample),
        interleaved_(interleaved) {}
  void run(Runtime& runtime) override;

 private:
  Sizes sizes_;
  AttentionAction::Operand in_, out_;
  int32_t cosine_, sine_;
  bool one_sample_, interleaved_;
};

/// Rows divided by their root mean square, or with mean 0 and variance 1; then times `scale`, plus `bias` (-1: none).
class RowNormAction : public Action {
 public:
  RowNormAction(bool centred, float epsilon, int32_t in, int32_t scale, int32_t bias, int32_t out, int64_t rows,
                int64_t columns)
      : centred_(centred),
        epsilon_(epsilon),
        in_(in),
        scale_(scale),
        bias_(bias),
        out_(out),
        rows_(rows),
        columns_(columns) {}
  void run(Runtime& runtime) override;

 private:
  bool centred_;
  float epsilon_;
  int32_t in_, scale_, bias_, out_;
  int64_t rows_, columns_;
};

}  // namespace kaon
