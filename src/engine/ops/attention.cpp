#include <cmath>
#include <limits>
#include <optional>

#include "engine/arith.h"
#include "engine/heads.h"

namespace kaon {

namespace {

struct AttentionAttributes {
  int64_t query_heads = 0;
  int64_t key_heads = 0;
  std::optional<float> scale;
  float softcap = 0;
  bool causal = false;
  int64_t score_output = 0;  ///< which stage output 3 shows: 0 product, 1 capped, 2 masked, 3 probabilities
};

/// What is added to the scores: the given mask, minus infinity where a query must not look.
at::Tensor attention_bias(const Call& call, const AttentionAttributes& attributes, int64_t queries, int64_t past,
                          int64_t keys, const at::TensorOptions& options) {
  const double never = -std::numeric_limits<double>::infinity();
  at::Tensor bias = at::zeros({queries, keys}, options);
  if (call.has(3)) {
    const at::Tensor& mask = call.in(3);
    const bool flags = mask.scalar_type() == at::kBool;
    bias = flags ? at::zeros(mask.sizes(), options).masked_fill(mask.logical_not(), never) : mask.to(options);
    // Keys behind the mask's end are not looked at.
    if (bias.size(-1) < keys) bias = at::constant_pad_nd(bias, {0, keys - bias.size(-1)}, never);
  }
  const at::TensorOptions counting = options.dtype(at::kLong);
  const at::Tensor key = at::arange(keys, counting);
  at::Tensor offset = at::full({1, 1, 1, 1}, past, counting);
  if (call.has(6)) {
    const at::Tensor valid = call.in(6).to(at::kLong).reshape({-1, 1, 1, 1});
    bias = bias.masked_fill(key.ge(valid), never);
    offset = valid - queries;
  }
  if (attributes.causal) {
    const at::Tensor query = at::arange(queries, counting).unsqueeze(1) + offset;
    bias = bias.masked_fill(key.gt(query), never);
  }
  return bias;
}

void attention(Call& call, const AttentionAttributes& attributes) {
  const bool flat = call.in(0).dim() == 3;
  const at::Tensor query = split_heads(widen(call.in(0)), attributes.query_heads);
  at::Tensor key = split_heads(widen(call.in(1)), attributes.key_heads);
  at::Tensor value = split_heads(widen(call.in(2)), attributes.key_heads);
  const int64_t past = call.has(4) ? call.in(4).size(2) : 0;
  if (call.has(4)) key = at::cat({widen(call.in(4)), key}, 2);
  if (call.has(5)) value = at::cat({widen(call.in(5)), value}, 2);
  call.out(1, key, call.type(1));
  call.out(2, value, call.type(2));
  if (key.size(1) < 1 || query.size(1) % key.size(1) != 0) {
    fail(ErrorCode::InvalidInput, "K", "{} query heads cannot share {} key heads", query.size(1), key.size(1));
  }
  if (call.shapes_only()) {
    const int64_t samples = query.size(0), heads = query.size(1), queries = query.size(2), width = value.size(3);
    const std::vector<int64_t> apart{samples, heads, queries, width}, joined{samples, queries, heads * width};
    call.out_zeros(0, flat ? joined : apart, call.type(0));
    if (call.wants(3)) call.out_zeros(3, {samples, heads, queries, key.size(2)}, call.type(0));
    return;
  }
  const int64_t shared = query.size(1) / key.size(1);
  if (shared > 1) {
    key = key.repeat_interleave(shared, 1);
    value = value.repeat_interleave(shared, 1);
  }
  const double scale = attributes.scale.value_or(1 / std::sqrt(static_cast<float>(query.size(3))));
  const at::Tensor product = at::matmul(query * scale, key.transpose(2, 3));
  const at::Tensor capped =
      attributes.softcap > 0 ? at::tanh(product / attributes.softcap) * attributes.softcap : product;
  const at::Tensor masked =
      capped + attention_bias(call, attributes, query.size(2), past, key.size(2), query.options());
  // A query that may look at nothing yields zeros.
  const at::Tensor blind = masked.eq(-std::numeric_limits<double>::infinity()).all(-1, /*keepdim=*/true);
  const at::Tensor weights = masked.masked_fill(blind, 0).softmax(-1).masked_fill(blind, 0);
  const at::Tensor y = at::matmul(weights, value);
  call.out(0, flat ? join_heads(y) : y, call.type(0));
  const at::Tensor stages[] = {product, capped, masked, weights};
  call.out(3, stages[attributes.score_output], call.type(0));
}

Kernel make_attention(const OpInfo& info) {
  const Node& node = info.node();
  AttentionAttributes attributes;
  attributes.query_heads = node.get_int("q_num_heads", 0);
  attributes.key_heads = node.get_int("kv_num_heads", 0);
  if (const float* scale = node.get_if<float>("scale")) attributes.scale = *scale;
  attributes.softcap = node.get_float("softcap", 0);
  attributes.causal = node.get_int("is_causal", 0) != 0;
  attributes.score_output = node.get_int("qk_matmul_output_mode", 0);
  if (attributes.score_output < 0 || attributes.score_output > 3) {
    info.unsupported(fmt::format("qk_matmul_output_mode {}; 0 to 3 are known", attributes.score_output));
  }
  return [attributes](Call& call) { attention(call, attributes); };
}

/// Turns pairs of elements by the angle of their token's position.
Kernel make_rotary_embedding(const OpInfo& info) {
  const Node& node = info.node();
  const int64_t heads = node.get_int("num_heads", 0);
  const int64_t rotated = node.get_int("rotary_embedding_dim", 0);
  const bool interleaved = node.get_int("interleaved", 0) != 0;
  return [heads, rotated, interleaved](Call& call) {
    const bool flat = call.in(0).dim() == 3;
    const at::Tensor x = split_heads(widen(call.in(0)), heads);
    const int64_t width = rotated > 0 ? rotated : x.size(3);
    if (width > x.size(3) || width % 2 != 0) {
      fail(ErrorCode::InvalidInput, "rotary_embedding_dim", "{} of {} elements cannot be turned in pairs", width,
           x.size(3));
    }
    if (call.shapes_only()) return call.out_zeros(0, call.in(0).sizes(), call.type(0));
    const auto angle = [&](size_t input) {
      at::Tensor cache = widen(call.in(input));
      if (call.has(3)) {
        const at::Tensor& positions = call.in(3);
        cache = cache.index_select(0, positions.to(at::kLong).reshape({-1}))
                    .reshape({positions.size(0), positions.size(1), cache.size(-1)});
      }
      return cache.unsqueeze(1);
    };
    const at::Tensor cosine = angle(1), sine = angle(2);
    const at::Tensor turned = x.narrow(3, 0, width);
    const at::Tensor a = interleaved ? turned.slice(3, 0, width, 2) : turned.narrow(3, 0, width / 2);
    const at::Tensor b = interleaved ? turned.slice(3, 1, width, 2) : turned.narrow(3, width / 2, width / 2);
    const at::Tensor real = a * cosine - b * sine;
    const at::Tensor imaginary = a * sine + b * cosine;
    const at::Tensor pairs =
        interleaved ? at::stack({real, imaginary}, -1).reshape(turned.sizes()) : at::cat({real, imaginary}, 3);
    const at::Tensor y = at::cat({pairs, x.narrow(3, width, x.size(3) - width)}, 3);
    call.out(0, flat ? join_heads(y) : y, call.type(0));
  };
}

}  // namespace

void register_attention(OpRegistry& ops) {
  ops.add("Attention", make_attention, fixed_shape());
  ops.add("RotaryEmbedding", make_rotary_embedding, fixed_shape());
}

}  // namespace kaon
