"""lm_families.py FOLDER: small random models of every family, saved as Hugging Face saves them, with what its own code
computes from them in float32. Writes the folders under tests/data/lm that src/lm/families_test.cpp reads.

Needs torch and transformers (made with torch 2.15.0, transformers 5.22.2)."""
import os
import sys

import numpy as np
import torch
from transformers import AutoModel, AutoModelForCausalLM, CONFIG_MAPPING

SMALL = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, vocab_size=48,
             max_position_embeddings=64, bos_token_id=0, eos_token_id=1, pad_token_id=None)
GROUPED = dict(SMALL, num_key_value_heads=2)
FACTORS = [1.0 + 0.25 * i for i in range(3)]

# name: (model_type, config, stored type)
CASES = {
    "llama3": ("llama", dict(GROUPED, tie_word_embeddings=True, rope_parameters=dict(
        rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=16)), "bfloat16"),
    "llama_linear": ("llama", dict(SMALL, attention_bias=True, mlp_bias=True, head_dim=6, rope_parameters=dict(
        rope_type="linear", rope_theta=10000.0, factor=2.0)), "float16"),
    "mistral": ("mistral", dict(GROUPED, sliding_window=4, head_dim=6), "float32"),
    "qwen2": ("qwen2", dict(GROUPED, use_sliding_window=True, sliding_window=5, max_window_layers=1), "float32"),
    "qwen2_plain": ("qwen2", dict(GROUPED, tie_word_embeddings=True), "float32"),
    "qwen3": ("qwen3", dict(GROUPED, head_dim=8), "bfloat16"),
    "phi3_short": ("phi3", dict(GROUPED, hidden_size=32, original_max_position_embeddings=32, rope_parameters=dict(
        rope_type="longrope", rope_theta=10000.0, short_factor=FACTORS, long_factor=[2 * f for f in FACTORS],
        original_max_position_embeddings=32, partial_rotary_factor=0.75)), "float32"),
    "phi3_long": ("phi3", dict(GROUPED, hidden_size=32, original_max_position_embeddings=8, rope_parameters=dict(
        rope_type="longrope", rope_theta=10000.0, short_factor=FACTORS, long_factor=[2 * f for f in FACTORS],
        original_max_position_embeddings=8, partial_rotary_factor=0.75)), "float32"),
    "gemma2": ("gemma2", dict(GROUPED, head_dim=6, sliding_window=4, query_pre_attn_scalar=20,
                              attn_logit_softcapping=2.0, final_logit_softcapping=3.0), "float32"),
    "gpt2": ("gpt2", dict(n_embd=16, n_layer=2, n_head=4, n_inner=24, vocab_size=48, n_positions=64,
                          scale_attn_by_inverse_layer_idx=True, bos_token_id=0, eos_token_id=1), "float32"),
    "gpt2_plain": ("gpt2", dict(n_embd=16, n_layer=2, n_head=4, n_inner=24, vocab_size=48, n_positions=64,
                                bos_token_id=0, eos_token_id=1), "float32"),
    "opt_narrow": ("opt", dict(hidden_size=16, word_embed_proj_dim=8, ffn_dim=24, num_hidden_layers=2,
                               num_attention_heads=4, vocab_size=48, max_position_embeddings=64,
                               do_layer_norm_before=False, bos_token_id=0, eos_token_id=1, pad_token_id=1), "float16"),
    "bert": ("bert", dict(SMALL, type_vocab_size=2, pad_token_id=0), "float32"),
}


def make(folder, name, kind, settings, dtype):
    torch.manual_seed(sum(map(ord, name)))
    config = CONFIG_MAPPING[kind](**settings)
    config._attn_implementation = "eager"
    causal = kind != "bert"
    model = (AutoModelForCausalLM if causal else AutoModel).from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():  # large enough that every part of a block matters
            parameter.normal_(0, 0.4 if parameter.dim() > 1 else 0.3)
            if parameter.dim() == 1:
                parameter.add_(0.0 if kind == "gemma2" else 0.5)
    model = model.to(getattr(torch, dtype)).eval()
    path = os.path.join(folder, name)
    model.save_pretrained(path)
    # Read again: the rotary frequencies must not have been through 16 bits.
    loader = AutoModelForCausalLM if causal else AutoModel
    model = loader.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    rng = np.random.default_rng(0)
    ids = rng.integers(2, 48, (2, 12))
    arrays = {"input_ids": ids}
    feeds = {"input_ids": torch.from_numpy(ids)}
    if not causal:
        mask = np.ones_like(ids)
        mask[1, 7:] = 0
        arrays["attention_mask"], arrays["token_type_ids"] = mask, (rng.random((2, 12)) < 0.5).astype(np.int64)
        feeds.update({key: torch.from_numpy(arrays[key]) for key in ("attention_mask", "token_type_ids")})
    with torch.no_grad():
        out = model(**feeds)
    if causal:
        arrays["logits"] = out.logits.numpy()
    else:
        states = out.last_hidden_state.numpy()
        arrays["last_hidden_state"] = states
        arrays["sentence_embedding"] = (states * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
    np.savez(os.path.join(path, "truth.npz"), **{k: v if v.dtype == np.int64 else v.astype(np.float32)
                                                  for k, v in arrays.items()})
    print(name, sum(p.numel() for p in model.parameters()), float(np.abs(arrays.get("logits", 0)).max()))


if __name__ == "__main__":
    for case, row in CASES.items():
        make(sys.argv[1], case, *row)
