// What transformers are made of beside products: attention, rotary embeddings, norms of rows.
#include <cmath>

#include "engine/plan/cached_attention.h"
#include "engine/plan/lowering.h"

namespace kaon {

namespace {

/// [samples, tokens, heads · width] or [samples, heads, tokens, width].
struct Heads {
  int64_t samples = 0, heads = 0, tokens = 0, width = 0;
  AttentionAction::Strides strides = {};
};

std::optional<Heads> heads_of(const Shape& shape, int64_t heads) {
  if (shape.size() == 4) {
    return Heads{
        shape[0], shape[1], shape[2], shape[3], {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3]}};
  }
  if (shape.size() != 3 || heads < 1 || shape[2] % heads != 0) return std::nullopt;
  const int64_t width = shape[2] / heads;
  return Heads{shape[0], heads, shape[1], width, {shape[1] * shape[2], width, shape[2]}};
}

/// A mask of up to four axes over [samples, heads, queries, keys].
std::optional<AttentionAction::Mask> mask_of(const Shape& shape, const Shape& over) {
  if (shape.size() > 4 || shape.empty() || shape.back() != over.back()) return std::nullopt;
  int64_t strides[4] = {};
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    const size_t axis = i + 4 - shape.size();
    if (shape[i] != 1 && shape[i] != over[axis]) return std::nullopt;
    strides[axis] = shape[i] == 1 ? 0 : stride;
    stride *= shape[i];
  }
  return AttentionAction::Mask{-1, false, strides[0], strides[1], strides[2], strides[3]};
}

}  // namespace

bool Lowering::lower_attention(const PlanOp& op) {
  const auto given = [&](size_t i) { return i < op.inputs.size() && op.inputs[i] >= 0; };
  if (op.outputs.size() != 1 || op.inputs.size() < 3 || given(4) != given(5) || given(6)) return false;
  const Node& node = *op.node;
  const bool cached = given(4) && element_count(facts(op.inputs[4]).shape) > 0;
  for (const size_t i : {0, 1, 2, 4, 5}) {
    if ((i < 3 || cached) && !is_float(op.inputs[i])) return false;
  }
  const int64_t key_heads = node.get_int("kv_num_heads", 0);
  const auto q = heads_of(facts(op.inputs[0]).shape, node.get_int("q_num_heads", 0));
  const auto k = heads_of(facts(op.inputs[1]).shape, key_heads);
  const auto v = heads_of(facts(op.inputs[2]).shape, key_heads);
  const auto y = heads_of(facts(op.outputs[0]).shape, q ? q->heads : 0);
  if (!q || !k || !v || !y || k->samples != q->samples || v->samples != q->samples || v->heads != k->heads ||
      v->tokens != k->tokens || k->width != q->width || q->heads % k->heads != 0) {
    return false;
  }
  std::optional<Heads> past_k, past_v;
  if (cached) {
    past_k = heads_of(facts(op.inputs[4]).shape, key_heads);
    past_v = heads_of(facts(op.inputs[5]).shape, key_heads);
    const auto fits = [](const std::optional<Heads>& past, const Heads& more) {
      return past && past->samples == more.samples && past->heads == more.heads && past->width == more.width;
    };
    if (!fits(past_k, *k) || !fits(past_v, *v) || past_k->tokens != past_v->tokens) return false;
  }
  int64_t keys = (cached ? past_k->tokens : 0) + k->tokens;
  AttentionAction::Mask mask;
  if (given(3)) {
    const ValueFacts& facts = this->facts(op.inputs[3]);
    // Keys behind the mask's end are not looked at.
    if (!cached && !facts.shape.empty()) keys = std::min(keys, facts.shape.back());
    const auto laid = mask_of(facts.shape, {q->samples, q->heads, q->tokens, keys});
    if (!laid || (facts.type != DType::Bool && (cached || facts.type != DType::Float32))) return false;
    mask = *laid;
    mask.flags = facts.type == DType::Bool;
    mask.slot = request_plain(op.inputs[3]);
  }
  const float* given_scale = node.get_if<float>("scale");
  const float scale = given_scale != nullptr ? *given_scale : 1 / std::sqrt(static_cast<float>(q->width));
  const float softcap = node.get_float("softcap", 0);
  const bool causal = node.get_int("is_causal", 0) != 0;
  const auto operand = [&](size_t input, const Heads& heads) {
    return AttentionAction::Operand{request_plain(op.inputs[input]), heads.strides};
  };
  const AttentionAction::Operand of_q = operand(0, *q), of_k = operand(1, *k), of_v = operand(2, *v);
  if (cached) {
    const AttentionAction::Operand of_past_k = operand(4, *past_k), of_past_v = operand(5, *past_v);
    const int32_t out = define_plain(op.outputs[0]);
    if (mask.slot >= 0) touch(mask.slot);
    emit(std::make_unique<CachedAttentionAction>(
             CachedAttentionAction::Sizes{q->samples, q->heads, k->heads, q->tokens, past_k->tokens, k->tokens,
                                          q->width, v->width},
             CachedAttentionAction::Operands{of_q, of_k, of_v, of_past_k, of_past_v, {out, y->strides}}, scale, softcap,
             causal, mask),
         {of_q.slot, of_k.slot, of_v.slot, of_past_k.slot, of_past_v.slot}, {out});
    return true;
  }
  const AttentionAction::Sizes sizes{q->samples, q->heads, k->heads, q->tokens, keys, q->width, v->width};
  ValueFacts packed;
  packed.shape = {AttentionAction::scratch_size(sizes)};
  packed.type = DType::Float32;
  const int32_t packed_value = graph_.add_value(std::move(packed));
  states_.emplace_back();
  const int32_t scratch = define_plain(packed_value);
  const int32_t out = define_plain(op.outputs[0]);
  if (mask.slot >= 0) touch(mask.slot);
  emit(std::make_unique<AttentionAction>(sizes, of_q, of_k, of_v, AttentionAction::Operand{out, y->strides}, scratch,
                                         scale, softcap, causal, mask),
       {of_q.slot, of_k.slot, of_v.slot}, {scratch, out});
  return true;
}

bool Lowering::lower_rotary_embedding(const PlanOp& op) {
  if (op.inputs.size() < 3 || (op.inputs.size() > 3 && op.inputs[3] >= 0)) return false;
  for (size_t i = 0; i < 3; ++i) {
    if (!is_float(op.inputs[i])) return false;
  }
  const auto x = heads_of(facts(op.inputs[0]).shape, op.node->get_int("num_heads", 0));
  if (!x) return false;
  const int64_t given = op.node->get_int("rotary_embedding_dim", 0);
  const int64_t turned = given > 0 ? given : x->width;
  const Shape& angles = facts(op.inputs[1]).shape;
  if (turned > x->width || turned % 2 != 0 || angles != facts(op.inputs[2]).shape || angles.size() != 3 ||
      angles[1] != x->tokens || angles[2] != turned / 2 || (angles[0] != 1 && angles[0] != x->samples)) {
    return false;
  }
  const int32_t in = request_plain(op.inputs[0]);
  const int32_t cosine = request_plain(op.inputs[1]);
  const int32_t sine = request_plain(op.inputs[2]);
  const int32_t out = define_plain(op.outputs[0]);
  emit(std::make_unique<RotaryAction>(RotaryAction::Sizes{x->samples, x->tokens, x->heads, x->width, turned},
                                      AttentionAction::Operand{in, x->strides},
                                      AttentionAction::Operand{out, x->strides}, cosine, sine, angles[0] == 1,
                                      op.node->get_int("interleaved", 0) != 0),
       {in, cosine, sine}, {out});
  return true;
}

bool Lowering::lower_row_norm(const PlanOp& op) {
  const int32_t x = op.inputs[0];
  const Shape shape = facts(x).shape;
  const int64_t axis = op.node->get_int("axis", -1);
  if (op.outputs.size() != 1 || op.inputs.size() < 2 || shape.empty()) return false;
  if (axis != -1 && axis != std::ssize(shape) - 1) return false;
  const int32_t bias = op.inputs.size() > 2 ? op.inputs[2] : -1;
  const Shape row{shape.back()};
  const auto fits = [&](int32_t id) { return is_float(id) && facts(id).shape == row; };
  if (!is_float(x) || !is_float(op.outputs[0]) || !fits(op.inputs[1]) || (bias >= 0 && !fits(bias))) return false;
  const int32_t in = request_plain(x);
  const int32_t scale = request_plain(op.inputs[1]);
  const int32_t added = bias < 0 ? -1 : request_plain(bias);
  const int32_t out = reuse_or_define(op, in, op.outputs[0], plain_desc(shape));
  touch(scale);
  if (added >= 0) touch(added);
  emit(std::make_unique<RowNormAction>(op.is("LayerNormalization"), op.node->get_float("epsilon", 1e-5F), in, scale,
                                       added, out, element_count(shape) / shape.back(), shape.back()),
       {in}, {out});
  return true;
}

}  // namespace kaon
