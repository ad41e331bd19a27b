"""lm_float32.py MODELS FILE: the logits of the language models of ../shared in float32 arithmetic on a CPU, every 61st of
the vocabulary, for the ids of their truth.npz (whose own logits were computed with shorter products)."""
import os
import sys

import numpy as np
import torch
from transformers import AutoModelForCausalLM

if __name__ == "__main__":
    arrays = {}
    for name in ["opt-17m", "llama-9m", "gpt2-5m"]:
        folder = os.path.join(sys.argv[1], name)
        truth = np.load(os.path.join(folder, "truth.npz"))
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        with torch.no_grad():
            logits = model(torch.from_numpy(truth["input_ids"].astype(np.int64))[None]).logits[0].numpy()
        gap = np.abs(logits - truth["logits"]).max() / np.abs(logits).max()
        print(f"{name}: truth.npz is {gap:.3g} away")
        arrays[name] = np.ascontiguousarray(logits[:, ::61])
    np.savez(sys.argv[2], **arrays)
