// Fused layers that ONNX Runtime's optimizer writes into models.
#include <cmath>
#include <limits>

#include "engine/arith.h"
#include "engine/heads.h"

namespace kaon {

namespace {

using Function = std::function<at::Tensor(const at::Tensor&)>;

Function gemm_activation(const OpInfo& info) {
  const std::string name = info.node().get_string("activation", "");
  const double alpha = info.node().get_float("activation_alpha", name == "LeakyRelu" ? 0.01F : 1);
  if (name == "Relu") return [](const at::Tensor& x) { return at::relu(x); };
  if (name == "Tanh") return [](const at::Tensor& x) { return at::tanh(x); };
  if (name == "Sigmoid") return [](const at::Tensor& x) { return at::sigmoid(x); };
  if (name == "Softplus") return [](const at::Tensor& x) { return at::softplus(x); };
  if (name == "Softsign") return [](const at::Tensor& x) { return x / (x.abs() + 1); };
  if (name == "LeakyRelu") return [alpha](const at::Tensor& x) { return at::leaky_relu(x, alpha); };
  if (name == "Elu") return [alpha](const at::Tensor& x) { return at::elu(x, alpha); };
  info.unsupported("activation '" + name + "'; Relu, Tanh, Sigmoid, Softplus, Softsign, LeakyRelu and Elu are known");
}

Kernel make_fused_gemm(const OpInfo& info) {
  return [gemm = (*operators().find("", "Gemm"))(info), activation = gemm_activation(info)](Call& call) {
    std::vector<const Value*> inputs;
    for (size_t i = 0; i < call.input_count(); ++i) inputs.push_back(call.has(i) ? &call.value(i) : nullptr);
    Value y[1];
    Call inner(inputs, y);
    gemm(inner);
    call.out(0, activation(widen(y[0].tensor)), call.type(0));
  };
}

struct HeadAttributes {
  int64_t heads = 0;
  double scale = 0;  ///< 0: one over the root of a head's size
  double mask_value = -10000;
  bool causal = false;
  std::vector<int64_t> sizes;  ///< of query, key and value, where they differ

  explicit HeadAttributes(const OpInfo& info)
      : heads(info.node().get_int("num_heads", 0)),
        scale(info.node().get_float("scale", 0)),
        mask_value(info.node().get_float("mask_filter_value", -10000)),
        causal(info.node().get_int("unidirectional", 0) != 0),
        sizes(info.node().get_ints("qkv_hidden_sizes")) {
    if (info.node().get_int("do_rotary", 0) != 0) info.unsupported("do_rotary");
    if (heads < 1) fail(ErrorCode::InvalidInput, info.node().label(), "'num_heads' must be at least 1, not {}", heads);
    if (!sizes.empty() && sizes.size() != 3) {
      fail(ErrorCode::InvalidInput, info.node().label(), "'qkv_hidden_sizes' must have 3 entries");
    }
  }
};

/// What a mask adds to the scores [batch, heads, queries, keys]. It gives the number of keys of each sample [batch], or
/// which keys count: [batch, keys] or [batch, queries, keys].
at::Tensor mask_bias(const at::Tensor& mask, const HeadAttributes& attributes, int64_t batch, int64_t keys) {
  at::Tensor counts = mask.ne(0);
  if (mask.dim() == 1 && mask.size(0) == batch) {
    counts = at::arange(keys, at::kLong).lt(mask.to(at::kLong).unsqueeze(1));
  } else if (mask.dim() != 2 && mask.dim() != 3) {
    fail(ErrorCode::Unsupported, "mask", "its shape is {}; [batch], [batch, keys] and [batch, queries, keys] are known",
         to_string(mask.sizes()));
  }
  counts = counts.dim() == 2 ? counts.unsqueeze(1).unsqueeze(1) : counts.unsqueeze(1);
  return at::zeros(counts.sizes(), at::kFloat).masked_fill(counts.logical_not(), attributes.mask_value);
}

/// All of [batch, heads, sequence, size]; `bias` may be undefined.
at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const at::Tensor& bias,
                  const HeadAttributes& attributes) {
  const double scale = attributes.scale != 0 ? attributes.scale : 1 / std::sqrt(static_cast<double>(query.size(3)));
  at::Tensor scores = at::matmul(query, key.transpose(2, 3)) * scale;
  if (bias.defined()) scores = scores + bias;
  if (attributes.causal) {
    const int64_t queries = query.size(2), keys = key.size(2);
    const at::Tensor last = at::arange(queries, at::kLong).unsqueeze(1) + (keys - queries);
    scores = scores.masked_fill(at::arange(keys, at::kLong).gt(last), std::numeric_limits<float>::lowest());
  }
  return join_heads(at::matmul(scores.softmax(-1), value));
}

at::Tensor sum_of(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() ? a + b : a.defined() ? a : b;
}

/// Inputs: x, the weights of query, key and value side by side, their bias, mask, past [2, …], attention bias.
Kernel make_attention(const OpInfo& info) {
  return [attributes = HeadAttributes(info)](Call& call) {
    at::Tensor projected = at::matmul(widen(call.in(0)), widen(call.in(1)));
    if (call.has(2)) projected = projected + widen(call.in(2));
    const int64_t third = projected.size(2) / 3;
    const std::vector<int64_t> sizes =
        attributes.sizes.empty() ? std::vector<int64_t>{third, third, third} : attributes.sizes;
    const std::vector<at::Tensor> parts = projected.split_with_sizes(sizes, 2);
    const at::Tensor query = split_heads(parts[0], attributes.heads);
    at::Tensor key = split_heads(parts[1], attributes.heads);
    at::Tensor value = split_heads(parts[2], attributes.heads);
    if (call.has(4)) {
      const at::Tensor past = widen(call.in(4));
      key = at::cat({past[0], key}, 2);
      value = at::cat({past[1], value}, 2);
    }
    if (call.wants(1)) call.out(1, at::stack({key, value}), call.type(0));
    const at::Tensor mask = call.has(3) ? mask_bias(call.in(3), attributes, query.size(0), key.size(2)) : at::Tensor();
    call.out(0, attend(query, key, value, sum_of(mask, optional_input(call, 5)), attributes), call.type(0));
  };
}

/// Inputs: query, key, value, the bias of all three, key padding mask, attention bias, past key, past value.
Kernel make_multi_head_attention(const OpInfo& info) {
  if (!info.has_input(1) || !info.has_input(2)) info.unsupported("packed query, key and value");
  return [attributes = HeadAttributes(info)](Call& call) {
    at::Tensor parts[] = {widen(call.in(0)), widen(call.in(1)), widen(call.in(2))};
    if (call.has(3)) {
      int64_t at = 0;
      for (at::Tensor& part : parts) {
        // A key or value that is cut into heads already was projected elsewhere.
        if (part.dim() != 3) continue;
        part = part + widen(call.in(3)).narrow(0, at, part.size(2));
        at += part.size(2);
      }
    }
    const at::Tensor query = split_heads(parts[0], attributes.heads);
    at::Tensor key = split_heads(parts[1], attributes.heads);
    at::Tensor value = split_heads(parts[2], attributes.heads);
    if (call.has(6)) key = at::cat({widen(call.in(6)), key}, 2);
    if (call.has(7)) value = at::cat({widen(call.in(7)), value}, 2);
    if (call.wants(1)) call.out(1, key, call.type(0));
    if (call.wants(2)) call.out(2, value, call.type(0));
    const at::Tensor mask = call.has(4) ? mask_bias(call.in(4), attributes, query.size(0), key.size(2)) : at::Tensor();
    call.out(0, attend(query, key, value, sum_of(mask, optional_input(call, 5)), attributes), call.type(0));
  };
}

/// Rows of `table` for every index.
at::Tensor look_up(const at::Tensor& table, const at::Tensor& index) {
  std::vector<int64_t> shape = index.sizes().vec();
  shape.push_back(table.size(1));
  return table.index_select(0, index.to(at::kLong).reshape({-1})).reshape(shape);
}

/// Inputs: token and segment ids, word, position and segment tables, gamma, beta, mask, position ids.
Kernel make_embed_layer_norm(const OpInfo& info) {
  return [epsilon = info.node().get_float("epsilon", 1e-12F)](Call& call) {
    const at::Tensor& ids = call.in(0);
    const at::Tensor positions = call.has(8) ? call.in(8) : at::arange(ids.size(1), at::kLong);
    at::Tensor sum = look_up(widen(call.in(2)), ids) + look_up(widen(call.in(3)), positions);
    if (call.has(1)) sum = sum + look_up(widen(call.in(4)), call.in(1));
    const at::Tensor gamma = widen(call.in(5));
    call.out(0, at::layer_norm(sum, gamma.sizes(), gamma, widen(call.in(6)), epsilon), call.type(2));
    // How many tokens of each sample count.
    const at::Tensor lengths = call.has(7) ? call.in(7).ne(0).sum(1) : at::zeros({ids.size(0)}, at::kLong);
    call.out(1, lengths, DType::Int32);
    call.out(2, sum, call.type(2));
  };
}

}  // namespace

void register_microsoft(OpRegistry& ops) {
  ops.add("FusedGemm", make_fused_gemm, fixed_shape(), kMicrosoft);
  ops.add("Attention", make_attention, fixed_shape(), kMicrosoft);
  ops.add("MultiHeadAttention", make_multi_head_attention, fixed_shape(), kMicrosoft);
  ops.add("EmbedLayerNormalization", make_embed_layer_norm, fixed_shape(), kMicrosoft);
}

}  // namespace kaon
