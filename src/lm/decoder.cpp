#include "lm/decoder.h"

#include "base/error.h"

namespace kaon::lm {

std::string Decoder::norm(Builder& build, const std::string& name, const std::string& x) const {
  return build.rms_norm(name, x, facts().width, traits_.epsilon, traits_.norm_plus_one);
}

std::string Decoder::embedding(Builder& build) const {
  const std::string name = "model.embed_tokens";
  const std::string x = build.embedding(name, build.input_ids(), facts().vocabulary, facts().width);
  return traits_.embedding_scale == 1 ? x : build.scale(name, x, traits_.embedding_scale);
}

std::string Decoder::block(Builder& build, int64_t layer, const std::string& x) const {
  const std::string name = fmt::format("model.layers.{}", layer);
  const std::string before = norm(build, name + ".input_layernorm", x);
  std::string y = self_attention(build, layer, name + ".self_attn", before);
  if (traits_.norm_after) y = norm(build, name + ".post_attention_layernorm", y);
  const std::string middle = build.add(name + ".self_attn.residual", x, y);
  const char* second = traits_.norm_after ? ".pre_feedforward_layernorm" : ".post_attention_layernorm";
  y = feed_forward(build, name + ".mlp", norm(build, name + second, middle));
  if (traits_.norm_after) y = norm(build, name + ".post_feedforward_layernorm", y);
  return build.add(name + ".mlp.residual", middle, y);
}

std::string Decoder::self_attention(Builder& build, int64_t layer, const std::string& name,
                                    const std::string& x) const {
  const Facts& f = facts();
  const int64_t q_width = f.heads * f.head_width, kv_width = f.kv_heads * f.head_width;
  std::string q, k, v;
  if (traits_.fused) {
    const std::string both = build.linear(name + ".qkv_proj", x, f.width, q_width + 2 * kv_width, traits_.qkv_bias);
    const std::vector<std::string> parts = build.split(name + ".qkv_proj", both, {q_width, kv_width, kv_width});
    q = parts[0], k = parts[1], v = parts[2];
  } else {
    q = build.linear(name + ".q_proj", x, f.width, q_width, traits_.qkv_bias);
    k = build.linear(name + ".k_proj", x, f.width, kv_width, traits_.qkv_bias);
    v = build.linear(name + ".v_proj", x, f.width, kv_width, traits_.qkv_bias);
  }
  if (traits_.qk_norm) {
    q = build.head_norm(name + ".q_norm", q, f.heads, f.head_width, traits_.epsilon);
    k = build.head_norm(name + ".k_norm", k, f.kv_heads, f.head_width, traits_.epsilon);
  }
  q = build.rotate(name + ".q_rotary", q, f.heads, f.head_width, traits_.rope);
  k = build.rotate(name + ".k_rotary", k, f.kv_heads, f.head_width, traits_.rope);
  AttentionShape shape{f.heads, f.kv_heads, f.head_width, traits_.attention_scale, traits_.attention_cap};
  if (!traits_.windows.empty()) shape.window = traits_.windows[static_cast<size_t>(layer)];
  const std::string y = build.attention(name, layer, q, k, build.unfold(v, kv_width), shape);
  return build.linear(name + ".o_proj", y, q_width, f.width, traits_.out_bias);
}

std::string Decoder::feed_forward(Builder& build, const std::string& name, const std::string& x) const {
  const int64_t width = facts().width, inner = facts().inner_width;
  std::string gate, up;
  if (traits_.fused) {
    const std::string both = build.linear(name + ".gate_up_proj", x, width, 2 * inner, traits_.mlp_bias);
    const std::vector<std::string> parts = build.split(name + ".gate_up_proj", both, {inner, inner});
    gate = parts[0], up = parts[1];
  } else {
    gate = build.linear(name + ".gate_proj", x, width, inner, traits_.mlp_bias);
    up = build.linear(name + ".up_proj", x, width, inner, traits_.mlp_bias);
  }
  const std::string y =
      build.multiply(name + ".gated", build.activation(name + ".act_fn", traits_.activation, gate), up);
  return build.linear(name + ".down_proj", y, inner, width, traits_.mlp_bias);
}

void Decoder::head(Builder& build, const std::string& x) const {
  const Facts& f = facts();
  const std::string y = norm(build, "model.norm", x);
  std::string logits = f.tied ? build.tied_linear("lm_head", "model.embed_tokens.weight", y, f.width, f.vocabulary)
                              : build.linear("lm_head", y, f.width, f.vocabulary, false);
  if (traits_.logit_cap > 0) logits = build.soft_cap("lm_head.cap", logits, traits_.logit_cap);
  build.row_output("logits", logits, f.vocabulary);
}

Facts decoder_facts(const Config& config, bool tied_by_default) {
  Facts facts = common_facts(config);
  facts.inner_width = config.size({"intermediate_size"}, kMostWidth);
  facts.tied = config.flag({"tie_word_embeddings"}, tied_by_default);
  return facts;
}

DecoderTraits decoder_traits(const Config& config, const Facts& facts) {
  DecoderTraits traits;
  traits.epsilon = config.number({"rms_norm_eps"}, 1e-6);
  traits.activation = config.text({"hidden_act", "hidden_activation"}, "silu");
  traits.rope = read_rope(config, facts.head_width);
  return traits;
}

std::vector<int64_t> layer_windows(const Config& config, const Facts& facts, bool (*slides)(int64_t layer)) {
  const int64_t window = config.size({"sliding_window"}, kMostPositions, 0);
  if (window == 0) return {};
  std::vector<int64_t> windows;
  if (config.has({"layer_types"})) {
    for (const std::string& type : config.texts({"layer_types"})) {
      if (type != "sliding_attention" && type != "full_attention") {
        config.wrong("layer_types", "full_attention and sliding_attention are known");
      }
      windows.push_back(type == "sliding_attention" ? window : 0);
    }
    if (std::ssize(windows) != facts.layers) {
      config.wrong("layer_types", fmt::format("one for each of {} layers is needed", facts.layers));
    }
    return windows;
  }
  for (int64_t i = 0; i < facts.layers; ++i) windows.push_back(slides(i) ? window : 0);
  return windows;
}

}  // namespace kaon::lm
