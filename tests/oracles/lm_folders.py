"""lm_folders.py KAON MODELS: quantized folders against the libraries that others read them with.

For llama-9m and opt-17m of MODELS and the schemes below, `kaon quantize` writes a folder; transformers with
compressed-tensors loads it and gives the perplexity of some windows, which must be what `kaon eval` says of the folder.
nvfp4 and mxfp4 are decompressed tensor by tensor by compressed-tensors, and must be what the format's description says.
Integer layouts are unpacked here once more, from that description alone.

Needs torch, transformers, compressed-tensors and safetensors (made with 2.15.0, 5.22.2, 0.20.0, 0.8.0)."""
import json
import math
import os
import subprocess
import sys
import tempfile

os.environ["TQDM_DISABLE"] = "1"
# A file beside this one bears the name of a package.
sys.path = [path for path in sys.path if os.path.abspath(path or ".") != os.path.dirname(os.path.abspath(__file__))]
try:
    import torch
    import transformers
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationScheme
except ImportError as error:
    print(f"no torch, transformers or compressed-tensors here ({error}); folders were not compared")
    sys.exit(0)
import numpy as np
from safetensors import safe_open

KAON, MODELS = sys.argv[1:3]
WINDOWS, LENGTH = 8, 256
BOUND = 5e-4
# Where inputs are rounded, the last bit of a sum decides some codes, and what follows differs by a step: over so few
# tokens perplexities part further, though both compute the same.
ROUNDED_INPUTS = 1e-2
failures = 0


def expect(good, what):
    global failures
    failures += not good
    print("ok  " if good else "FAIL", what, flush=True)


def run(*arguments):
    done = subprocess.run([KAON, *arguments, "-q", "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"kaon {' '.join(arguments)}: {done.stderr}")
    return json.loads(done.stdout)


def tensors_of(folder):
    found = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            with safe_open(os.path.join(folder, name), "pt") as file:
                found.update({key: file.get_tensor(key) for key in file.keys()})
    return found


def perplexity(model, ids):
    total = 0.0
    with torch.no_grad():
        for window in ids:
            logits = model(window[None]).logits[0, :-1].double()
            total += torch.nn.functional.cross_entropy(logits, window[1:]).item()
    return math.exp(total / len(ids))


def unpack(words, bits, count):
    """Number i of each row at bit i · bits."""
    words = words.numpy().astype(np.uint32)
    every = ((words[:, :, None] >> np.arange(32, dtype=np.uint32)) & 1).reshape(words.shape[0], -1)
    every = every[:, :count * bits].reshape(words.shape[0], count, bits)
    return (every << np.arange(bits, dtype=np.uint32)).sum(-1).astype(np.int64)


def by_hand(tensors, module, args):
    rows, columns = tensors[module + ".weight_shape"].tolist()
    bits = args["num_bits"]
    codes = unpack(tensors[module + ".weight_packed"], bits, columns) - 2 ** (bits - 1)
    scale = tensors[module + ".weight_scale"].float().numpy()
    zero = np.zeros_like(scale)
    if not args["symmetric"]:
        zero = unpack(tensors[module + ".weight_zero_point"].T, bits, rows).T - 2 ** (bits - 1)
    group = args["group_size"] or columns
    of = np.arange(columns) // group
    return (codes - zero[:, of]) * scale[:, of]


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def fp4_by_hand(parts, scheme):
    packed = parts["weight_packed"].numpy()
    codes = np.stack([packed & 15, packed >> 4], -1).reshape(packed.shape[0], -1)
    values = np.where(codes & 8, -E2M1[codes & 7], E2M1[codes & 7])
    if scheme == "nvfp4":
        scale = parts["weight_scale"].float().numpy() / parts["weight_global_scale"].numpy()
    else:
        scale = np.exp2(parts["weight_scale"].numpy().astype(np.float32) - 127)
    return values * np.repeat(scale, codes.shape[1] // scale.shape[1], 1)


def windows_of(tokenizer, folder):
    text = os.path.join(MODELS, "..", "data", "text", "docs_valid.txt")
    ids = tokenizer(open(text, encoding="utf-8").read(), add_special_tokens=False)["input_ids"]
    data = os.path.join(folder, "windows.json")
    json.dump({"text": os.path.abspath(text), "window": LENGTH, "stride": LENGTH, "limit": WINDOWS}, open(data, "w"))
    return torch.tensor(ids[:WINDOWS * LENGTH]).reshape(WINDOWS, LENGTH), data


def config_file(folder, name, **rule):
    path = os.path.join(folder, name + ".json")
    json.dump({"global": rule}, open(path, "w"))
    return ["--config", path]


def main():
    with tempfile.TemporaryDirectory() as work:
        channel8 = dict(format="int8", granularity="per_channel")
        schemes = {
            "w4g32": ["--scheme", "w4g32"], "w4c": ["--scheme", "w4c"], "w8c": ["--scheme", "w8c"],
            "uint3g32": config_file(work, "u3", weight=dict(format="uint3", granularity="per_group", symmetric=False)),
            "fp8d": ["--scheme", "fp8d"],
            "w8a8 tokens": config_file(work, "tokens", weight=channel8,
                                       input=dict(format="int8", granularity="per_token", dynamic=True)),
            "w8a8c static": ["--scheme", "w8a8c", "--calib", "DATA"],
        }
        for name in ("llama-9m", "opt-17m"):
            source = os.path.join(MODELS, name)
            tokenizer = transformers.AutoTokenizer.from_pretrained(source)
            ids, data = windows_of(tokenizer, work)
            for scheme, flags in schemes.items():
                out = os.path.join(work, f"{name}-{scheme.replace(' ', '-')}")
                run("quantize", source, *[data if flag == "DATA" else flag for flag in flags], "-o", out)
                ours = run("eval", out, "--data", data, "--metric", "ppl")["metrics"]["ppl"]
                model = transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32).eval()
                theirs = perplexity(model, ids)
                bound = ROUNDED_INPUTS if "8d" in scheme or "a8" in scheme else BOUND
                expect(abs(ours / theirs - 1) < bound, f"{name} {scheme}: kaon {ours:.4f}, transformers {theirs:.4f}")
                config = json.load(open(os.path.join(out, "config.json")))["quantization_config"]
                if config["format"] == "pack-quantized":
                    args = config["config_groups"]["group_0"]["weights"]
                    tensors, loaded = tensors_of(out), dict(model.named_parameters())
                    packed = [key[:-len(".weight_packed")] for key in tensors if key.endswith(".weight_packed")]
                    worst = max(np.abs(by_hand(tensors, module, args) - loaded[module + ".weight"].numpy(force=True)).max()
                                for module in packed if module + ".weight" in loaded)
                    expect(worst < 1e-6, f"{name} {scheme}: {len(packed)} weights unpacked by hand, off by {worst:.1e}")
        source = os.path.join(MODELS, "llama-9m")
        for scheme in ("nvfp4", "mxfp4"):
            out = os.path.join(work, scheme)
            run("quantize", source, "--scheme", scheme, "-o", out)
            config = json.load(open(os.path.join(out, "config.json")))["quantization_config"]
            group = QuantizationScheme(**{k: v for k, v in config["config_groups"]["group_0"].items()})
            tensors = tensors_of(out)
            compressor = BaseCompressor.get_value_from_registry(config["format"])
            for module in ("model.layers.0.self_attn.q_proj", "model.layers.5.mlp.down_proj"):
                parts = {key[len(module) + 1:]: value for key, value in tensors.items() if key.startswith(module + ".")}
                theirs = compressor.decompress(dict(parts), group)["weight"].float().numpy()
                ours = fp4_by_hand(parts, scheme)
                # It multiplies nvfp4's numbers in bfloat16.
                same = np.array_equal(theirs, ours) if scheme == "mxfp4" else np.allclose(theirs, ours, rtol=2 ** -7)
                expect(same, f"{scheme} {module}: compressed-tensors' own decompression")
                exact = tensors_of(source)[module + ".weight"].float().numpy()
                lost = np.linalg.norm(ours - exact) / np.linalg.norm(exact)
                expect(lost < 0.15, f"{scheme} {module}: off by {lost:.3f} of the float weight")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
