"""lm_memory.py KAON TOKENIZER_FOLDER TEXT SCRATCH [WINDOWS]: what memory `kaon eval --memory` takes for a language model
that is larger than it.

Writes a random Llama of 1.1 billion parameters in bfloat16 (2.2 GB) to SCRATCH, then one with twice the blocks;
evaluates WINDOWS (8) windows of 512 tokens and prints the most anonymous memory that the process had and when its first
progress was to be seen.
Exits with 1 where that is above 1.2 GiB, or more with twice the blocks, or later than after 2 s."""
import functools
import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time

import numpy as np

WIDTH, INNER, HEADS, KV_HEADS, VOCABULARY, LAYERS = 2048, 5632, 32, 4, 32000, 22
MOST_MB = 1.2 * 1024
MOST_SECONDS = 2.0


@functools.cache
def random_bytes(shape):
    """The same for every tensor of this shape, which is quicker."""
    values = np.random.default_rng(1).standard_normal(int(np.prod(shape)), dtype=np.float32) * np.float32(0.02)
    return (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()


def write_tensors(path, shapes):
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for shape in shapes.values():
            file.write(random_bytes(shape))


def block_shapes(layer):
    kv = WIDTH // HEADS * KV_HEADS
    shapes = {"self_attn.q_proj": (WIDTH, WIDTH), "self_attn.k_proj": (kv, WIDTH), "self_attn.v_proj": (kv, WIDTH),
              "self_attn.o_proj": (WIDTH, WIDTH), "mlp.gate_proj": (INNER, WIDTH), "mlp.up_proj": (INNER, WIDTH),
              "mlp.down_proj": (WIDTH, INNER), "input_layernorm": (WIDTH,), "post_attention_layernorm": (WIDTH,)}
    return {f"model.layers.{layer}.{name}.weight": shape for name, shape in shapes.items()}


def write_folder(folder, tokenizer, layers):
    """One shard for each block, one for the rest."""
    os.makedirs(folder, exist_ok=True)
    config = dict(model_type="llama", hidden_size=WIDTH, intermediate_size=INNER, num_attention_heads=HEADS,
                  num_key_value_heads=KV_HEADS, num_hidden_layers=layers, vocab_size=VOCABULARY, torch_dtype="bfloat16",
                  max_position_embeddings=2048, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    shards = {f"block-{layer}.safetensors": block_shapes(layer) for layer in range(layers)}
    shards["rest.safetensors"] = {"model.embed_tokens.weight": (VOCABULARY, WIDTH), "model.norm.weight": (WIDTH,),
                                  "lm_head.weight": (VOCABULARY, WIDTH)}
    for name, shapes in shards.items():
        write_tensors(os.path.join(folder, name), shapes)
    places = {tensor: name for name, shapes in shards.items() for tensor in shapes}
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as file:
        json.dump({"metadata": {}, "weight_map": places}, file)
    for name in os.listdir(tokenizer):
        if name.startswith(("tokenizer", "vocab", "merges", "special")):
            shutil.copy(os.path.join(tokenizer, name), folder)
    return sum(int(np.prod(shape)) for shapes in shards.values() for shape in shapes.values())


def anonymous_mb(pid):
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            found = re.search(r"RssAnon:\s+(\d+) kB", file.read())
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return int(found.group(1)) / 1024 if found else 0.0


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(words):
    """The most anonymous MiB; seconds to the first progress on a terminal, of a processor's time too; seconds in all; what
    was printed."""
    terminal, far_end = pty.openpty()
    start = time.monotonic()
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=far_end, text=True)
    os.close(far_end)
    most, first, worked = 0.0, None, 0.0
    while child.poll() is None:
        most = max(most, anonymous_mb(child.pid))
        if select.select([terminal], [], [], 0.02)[0]:
            try:
                seen = os.read(terminal, 4096)
            except OSError:
                seen = b""
            if seen and first is None:
                first, worked = time.monotonic() - start, cpu_seconds(child.pid)
    seconds = time.monotonic() - start
    os.close(terminal)
    printed = child.stdout.read()
    if child.returncode != 0:
        sys.exit(f"{words[0]} exited with {child.returncode}")
    return most, first, worked, seconds, printed


def main():
    kaon, tokenizer, text, scratch = sys.argv[1:5]
    windows = int(sys.argv[5]) if len(sys.argv) > 5 else 8
    results = []
    for layers in (LAYERS, 2 * LAYERS):
        folder = os.path.join(scratch, f"llama-{layers}")
        parameters = write_folder(folder, tokenizer, layers)
        data = os.path.join(scratch, "windows.json")
        with open(data, "w", encoding="utf-8") as file:
            json.dump({"text": os.path.abspath(text), "window": 512, "stride": 512, "limit": windows}, file)
        most, first, worked, seconds, printed = measure(
            [kaon, "eval", folder, "--data", data, "--metric", "ppl", "--memory", "256", "--json"])
        shutil.rmtree(folder)
        shown = "none" if first is None else f"{first:.2f} s ({worked:.2f} s of work)"
        print(f"{layers} blocks, {parameters / 1e9:.2f} billion parameters, {windows} windows: {most:.0f} MiB of"
              f" anonymous memory, first progress after {shown}, {seconds:.0f} s in all, ppl"
              f" {json.loads(printed)['metrics']['ppl']:.0f}", flush=True)
        results.append((most, first))
    good = all(most <= MOST_MB and first is not None and first <= MOST_SECONDS for most, first in results)
    return 0 if good and results[1][0] <= 1.02 * results[0][0] else 1


if __name__ == "__main__":
    sys.exit(main())
