#include "lm/gguf_names.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

namespace kaon::lm {

namespace {

struct NamePair {
  std::string_view hub;
  std::string_view gguf;
};

/// Llama and its kin; "layers." stands for "model.layers.N.", "blk." for "blk.N.".
constexpr std::array kDecoderNames{
    NamePair{"model.embed_tokens", "token_embd"},
    NamePair{"model.norm", "output_norm"},
    NamePair{"lm_head", "output"},
    NamePair{"layers.input_layernorm", "blk.attn_norm"},
    NamePair{"layers.self_attn.q_proj", "blk.attn_q"},
    NamePair{"layers.self_attn.k_proj", "blk.attn_k"},
    NamePair{"layers.self_attn.v_proj", "blk.attn_v"},
    NamePair{"layers.self_attn.o_proj", "blk.attn_output"},
    NamePair{"layers.self_attn.q_norm", "blk.attn_q_norm"},
    NamePair{"layers.self_attn.k_norm", "blk.attn_k_norm"},
    NamePair{"layers.self_attn.qkv_proj", "blk.attn_qkv"},
    NamePair{"layers.post_attention_layernorm", "blk.ffn_norm"},
    NamePair{"layers.mlp.gate_proj", "blk.ffn_gate"},
    NamePair{"layers.mlp.up_proj", "blk.ffn_up"},
    NamePair{"layers.mlp.down_proj", "blk.ffn_down"},
    NamePair{"layers.mlp.gate_up_proj", "blk.ffn_up"},
};

constexpr std::array kGpt2Names{
    NamePair{"transformer.wte", "token_embd"},         NamePair{"transformer.wpe", "position_embd"},
    NamePair{"transformer.ln_f", "output_norm"},       NamePair{"lm_head", "output"},
    NamePair{"layers.ln_1", "blk.attn_norm"},          NamePair{"layers.attn.c_attn", "blk.attn_qkv"},
    NamePair{"layers.attn.c_proj", "blk.attn_output"}, NamePair{"layers.ln_2", "blk.ffn_norm"},
    NamePair{"layers.mlp.c_fc", "blk.ffn_up"},         NamePair{"layers.mlp.c_proj", "blk.ffn_down"},
};

/// What comes before a layer's number on the hub.
constexpr std::string_view kDecoderLayers = "model.layers.", kGpt2Layers = "transformer.h.";

}  // namespace

std::string gguf_tensor_name(const std::string& architecture, const std::string& name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos) return "";
  std::string module = name.substr(0, dot);
  std::string number;
  const bool gpt2 = architecture == "gpt2";
  const std::string_view layers = gpt2 ? kGpt2Layers : kDecoderLayers;
  if (module.starts_with(layers)) {
    const size_t end = module.find('.', layers.size());
    if (end == std::string::npos) return "";
    number = module.substr(layers.size(), end - layers.size());
    module = "layers." + module.substr(end + 1);
  }
  const std::span<const NamePair> names = gpt2 ? std::span<const NamePair>(kGpt2Names) : kDecoderNames;
  const auto row = std::ranges::find(names, module, &NamePair::hub);
  if (row == names.end()) return "";
  std::string stored(row->gguf);
  if (stored.starts_with("blk.")) stored.insert(4, number + ".");
  return stored + name.substr(dot);
}

bool is_turned_in_gguf(const std::string& architecture, const std::string& hub) {
  return architecture == "gpt2" && hub.starts_with(kGpt2Layers) && hub.find(".c_") != std::string::npos &&
         hub.ends_with(".weight");
}

}  // namespace kaon::lm
