"""gguf_models.py FOLDERS OUT: the small models under tests/data/lm as GGUF files, laid out as llama.cpp's converter does
(its names, keys, permuted queries and keys of Llama, turned matrices of GPT-2). Writes those under tests/data/lm_gguf.

Needs gguf and safetensors with torch, as lm_families.py does."""
import json
import math
import os
import sys

import gguf
import numpy as np
from safetensors.torch import load_file

DECODER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
LAYER = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "self_attn.qkv_proj": "attn_qkv", "post_attention_layernorm": "ffn_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate_up_proj": "ffn_up"}
GPT2 = {"transformer.wte": "token_embd", "transformer.wpe": "position_embd", "transformer.ln_f": "output_norm"}
GPT2_LAYER = {"ln_1": "attn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "ln_2": "ffn_norm",
              "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}


def permute(weights, heads):
    return weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:]).swapaxes(1, 2).reshape(weights.shape)


def llama3_factors(rope, width):
    factors = []
    for i in range(0, width, 2):
        length = 2 * math.pi * rope["rope_theta"] ** (i / width)
        low = rope["original_max_position_embeddings"] / rope["low_freq_factor"]
        high = rope["original_max_position_embeddings"] / rope["high_freq_factor"]
        if length < high:
            factors.append(1)
        elif length > low:
            factors.append(rope["factor"])
        else:
            smooth = (rope["original_max_position_embeddings"] / length - rope["low_freq_factor"]) / (
                rope["high_freq_factor"] - rope["low_freq_factor"])
            factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(factors, np.float32)


def write(folder, out):
    config = json.load(open(os.path.join(folder, "config.json")))
    family = config["model_type"]
    writer = gguf.GGUFWriter(out, family)
    get = lambda *keys: next(config[key] for key in keys if config.get(key) is not None)
    heads = get("num_attention_heads", "n_head")
    kv_heads = config.get("num_key_value_heads") or heads
    width = config.get("head_dim") or get("hidden_size", "n_embd") // heads
    writer.add_context_length(get("max_position_embeddings", "n_positions"))
    writer.add_embedding_length(get("hidden_size", "n_embd"))
    writer.add_block_count(get("num_hidden_layers", "n_layer"))
    writer.add_feed_forward_length(get("intermediate_size", "n_inner"))
    writer.add_head_count(heads)
    if family == "gpt2":
        writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    else:
        rope = config["rope_parameters"]
        writer.add_head_count_kv(kv_heads)
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        writer.add_key_length(width)
        writer.add_rope_freq_base(rope["rope_theta"])
        writer.add_rope_dimension_count(int(width * rope.get("partial_rotary_factor", 1)))
        if rope["rope_type"] == "llama3":
            writer.add_tensor("rope_freqs.weight", llama3_factors(rope, width))
        if rope["rope_type"] == "longrope":
            original = rope["original_max_position_embeddings"]
            factor = config["max_position_embeddings"] / original
            writer.add_rope_scaling_orig_ctx_len(original)
            writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(factor) / math.log(original)))
            writer.add_tensor("rope_factors_short.weight", np.array(rope["short_factor"], np.float32))
            writer.add_tensor("rope_factors_long.weight", np.array(rope["long_factor"], np.float32))
        if config.get("sliding_window") and family == "phi3":
            writer.add_sliding_window(config["sliding_window"])
    for name, tensor in load_file(os.path.join(folder, "model.safetensors")).items():
        half = tensor.dtype.itemsize == 2
        values = tensor.float().numpy()
        module, kind = name.rsplit(".", 1)
        parts = module.split(".")
        if family == "gpt2":
            turned = ".c_" in module and kind == "weight"
            values = np.ascontiguousarray(values.T) if turned else values
            stored = GPT2[module] if module in GPT2 else f"blk.{parts[2]}.{GPT2_LAYER['.'.join(parts[3:])]}"
        else:
            stored = DECODER[module] if module in DECODER else f"blk.{parts[2]}.{LAYER['.'.join(parts[3:])]}"
        if family == "llama" and stored.endswith("attn_q"):
            values = permute(values, heads)
        if family == "llama" and stored.endswith("attn_k"):
            values = permute(values, kv_heads)
        if half and values.ndim > 1:
            raw = gguf.quantize(values, gguf.GGMLQuantizationType.BF16)
            writer.add_tensor(f"{stored}.{kind}", raw, raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            writer.add_tensor(f"{stored}.{kind}", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    for case in ["llama3", "qwen2_plain", "qwen3", "phi3_short", "phi3_long", "gpt2_plain"]:
        write(os.path.join(sys.argv[1], case), os.path.join(sys.argv[2], case + ".gguf"))
