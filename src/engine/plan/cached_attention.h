#pragma once
#include "engine/plan/attention.h"

namespace kaon {

/// Attention of a few new tokens to earlier ones, whose keys and values lie in a room that may be larger than what the
/// mask lets count, and to each other. Reads them where they lie; what the mask hides costs nothing.
class CachedAttentionAction : public Action {
 public:
  using Operand = AttentionAction::Operand;
  struct Sizes {
    int64_t samples, heads, key_heads, queries, past, keys, width, value_width;
  };
  struct Operands {
    Operand q, k, v, past_k, past_v, out;
  };
  /// `mask`, over past and new keys, has flags.
  CachedAttentionAction(Sizes sizes, const Operands& operands, float scale, float softcap, bool causal,
                        AttentionAction::Mask mask)
      : sizes_(sizes), operands_(operands), scale_(scale), softcap_(softcap), causal_(causal), mask_(mask) {}
  void run(Runtime& runtime) override;

 private:
  /// Neighbouring keys, all in the past or all new.
  struct Piece {
    bool is_new;
    int64_t first, count;
  };
  /// Those that this query may look at.
  std::vector<Piece> seen(const Runtime& runtime, int64_t sample, int64_t head, int64_t query) const;
  void attend(const Runtime& runtime, int64_t sample, int64_t head, int64_t query, float* scores) const;

  Sizes sizes_;
  Operands operands_;
  float scale_, softcap_;
  bool causal_;
  AttentionAction::Mask mask_;
};

}  // namespace kaon
