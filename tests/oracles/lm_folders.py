"""lm_folders.py KAON MODELS: quantized folders against the libraries that others read them with.

For llama-9m and opt-17m of MODELS and the schemes below, `kaon quantize` writes a folder; transformers with
compressed-tensors loads it and gives the perplexity of some windows, which must be what `kaon eval` says of the folder.
Where inputs are quantized as they come, that library's Python differs from the kernels that serve such folders, and from
Kaon: its scale is amax / 127.5, and tokens of an input without a batch axis (OPT's fc1 and fc2) share one. These two are
mended here. Rounded inputs make of the last bit of a sum a step: embeddings that differ by 1e-6 move the library's own
perplexity over these tokens by up to 0.3 %. So several such runs are made, and Kaon must lie among them; and in short
windows of the first block alone, most of which no such step reaches, the logits must be the same.
nvfp4 and mxfp4 are decompressed tensor by tensor by compressed-tensors, and must be what the format's description says.
Integer layouts, and those of awq, gptq and quark, are unpacked here once more, from that description alone.

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
    from compressed_tensors.quantization.lifecycle import forward
except ImportError as error:
    print(f"no torch, transformers or compressed-tensors here ({error}); folders were not compared")
    sys.exit(0)
import numpy as np
from safetensors import safe_open

transformers.logging.set_verbosity_error()
KAON, MODELS = sys.argv[1:3]
WINDOWS, LENGTH = 8, 256
BOUND = 5e-4
SPREAD = 4  # standard deviations; of eight runs, one in 200 lies farther out
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


def mended_dynamic_scales(value, args, module=None, global_scale=None):
    """One scale for each token, whatever the shape; integers up to 127."""
    most = 448 if args.type == "float" else 127
    if args.strategy == "token":
        size = value.abs().amax(-1, keepdim=True)
    else:
        size = value.abs().amax().reshape(1)
    scale = size / most
    return torch.where(scale == 0, torch.ones_like(scale), scale), torch.zeros_like(scale)


def perplexities_nearby(model, ids):
    embeddings = model.get_input_embeddings().weight
    exact, found = embeddings.data.clone(), []
    torch.manual_seed(0)
    for size in (0, *[1e-6] * 7):
        embeddings.data = exact * (1 + size * torch.randn_like(exact))
        found.append(perplexity(model, ids))
    embeddings.data = exact
    return found


def first_block(source, work):
    """The model without the blocks behind the first."""
    to = os.path.join(work, os.path.basename(source) + "-first")
    if os.path.isdir(to):
        return to
    os.mkdir(to)
    for file in os.listdir(source):
        os.symlink(os.path.abspath(os.path.join(source, file)), os.path.join(to, file))
    config = dict(json.load(open(os.path.join(source, "config.json"))), num_hidden_layers=1)
    os.remove(os.path.join(to, "config.json"))
    json.dump(config, open(os.path.join(to, "config.json"), "w"))
    return to


def compare_perplexities(name, scheme, source, flags, data, ids, out, bound_of):
    run("quantize", source, *[data if flag == "DATA" else flag for flag in flags], "-o", out)
    ours = run("eval", out, "--data", data, "--metric", "ppl")["metrics"]["ppl"]
    model = transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32).eval()
    theirs, bound = bound_of(model, ids)
    expect(abs(ours / theirs - 1) < bound,
           f"{name} {scheme}: kaon {ours:.4f}, transformers {theirs:.4f}, within {bound:.2%}")
    return model


def compare_short_windows(name, scheme, source, flags, data, ids, work):
    out, given, made = (os.path.join(work, file) for file in (f"{name}-{scheme}-first", "ids.npz", "logits.npz"))
    run("quantize", source, *[data if flag == "DATA" else flag for flag in flags], "-o", out)
    windows = ids.reshape(-1)[:512].reshape(64, 8)
    np.savez(given, input_ids=windows.numpy())
    run("run", out, "--input", given, "-o", made)
    with torch.no_grad():
        model = transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32).eval()
        theirs = model(windows).logits.numpy()
    lost = np.linalg.norm(np.load(made)["logits"] - theirs, axis=-1) / np.linalg.norm(theirs, axis=-1)
    expect(np.median(lost) < 1e-5, f"{name} {scheme}: logits of short windows off by {np.median(lost):.1e} (median)")


def exact_bound(model, ids):
    return perplexity(model, ids), BOUND


def bound_of_runs(model, ids):
    several = perplexities_nearby(model, ids)
    return np.mean(several), max(BOUND, SPREAD * np.std(several, ddof=1) / np.mean(several))


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


AWQ = [0, 2, 4, 6, 1, 3, 5, 7]


def nibbles(words, order):
    """[lines, words] to [lines, 8 · words]: nibble i of a word is its column order[i]."""
    words = words.numpy().astype(np.uint32)
    codes = np.empty((words.shape[0], words.shape[1], 8), np.int64)
    for i, column in enumerate(order):
        codes[:, :, column] = words >> np.uint32(4 * i) & 15
    return codes.reshape(words.shape[0], -1)


def two_complement(codes):
    return np.where(codes > 7, codes - 16, codes)


def awq_by_hand(tensors, module):
    codes, zeros = (nibbles(tensors[f"{module}.{part}"], AWQ) for part in ("qweight", "qzeros"))
    scales = tensors[module + ".scales"].float().numpy()
    each = codes.shape[0] // scales.shape[0]
    return ((codes - np.repeat(zeros, each, 0)).astype(np.float32) * np.repeat(scales, each, 0)).T


def gptq_by_hand(tensors, module):
    codes = nibbles(tensors[module + ".qweight"].T, range(8)).T
    zeros = nibbles(tensors[module + ".qzeros"], range(8)) + 1
    scales, group = tensors[module + ".scales"].float().numpy(), tensors[module + ".g_idx"].numpy()
    return ((codes - zeros[group]).astype(np.float32) * scales[group]).T


def quark_by_hand(tensors, module, weight):
    stored, scales = tensors[module + ".weight"], tensors[module + ".weight_scale"]
    kind = weight["dtype"]
    if kind in ("int4", "uint4"):
        signed = two_complement if kind == "int4" else lambda codes: codes
        codes, each = signed(nibbles(stored, AWQ)), stored.shape[0] // scales.shape[0]
        zeros = np.zeros(scales.shape, np.int64)
        if not weight["symmetric"]:
            zeros = signed(nibbles(tensors[module + ".weight_zero_point"], AWQ))
        return ((codes - np.repeat(zeros, each, 0)).astype(np.float32) * np.repeat(scales.float().numpy(), each, 0)).T
    if kind == "fp4":
        return fp4_by_hand({"weight_packed": stored, "weight_scale": scales}, "mxfp4")
    scales = scales.float().numpy()
    return stored.float().numpy() * (scales[:, None] if scales.ndim == 1 else scales)


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


def other_layouts(work, source):
    """awq, gptq and quark against compressed-tensors' folder with the same codes."""
    integer = dict(format="uint4", granularity="per_group", group_size=32, symmetric=False)
    weights = {
        "uint4 g32": integer, "int4 g32": dict(integer, format="int4", symmetric=True),
        "int8": dict(format="int8", granularity="per_channel"), "fp8": dict(format="fp8_e4m3", granularity="per_channel"),
        "mxfp4": dict(format="mxfp4"),
    }
    for name, weight in weights.items():
        for method in ("awq", "gptq", "quark") if "int4" in name else ("quark",):
            weight = dict(weight, scale_type="float16" if method != "quark" else "float32")
            if name == "mxfp4":
                weight = dict(format="mxfp4")
            flags = config_file(work, "other", weight=weight)
            folders = [os.path.join(work, f"{kind} {name}") for kind in (method, "ct " + method)]
            run("quantize", source, *flags, "--format", method, "-o", folders[0])
            run("quantize", source, *flags, "-o", folders[1])
            tensors, same = tensors_of(folders[0]), tensors_of(folders[1])
            config, other = (json.load(open(os.path.join(out, "config.json")))["quantization_config"] for out in folders)
            suffix = ".weight_scale" if method == "quark" else ".qweight"
            modules = [key[:-len(suffix)] for key in tensors if key.endswith(suffix)]
            args, good = other["config_groups"]["group_0"]["weights"], len(modules) > 0
            for module in modules:
                if method == "quark":
                    ours = quark_by_hand(tensors, module, config["global_quant_config"]["weight"])
                else:
                    ours = (awq_by_hand if method == "awq" else gptq_by_hand)(tensors, module)
                if module + ".weight_shape" in same:
                    theirs = by_hand(same, module, args)
                elif name == "mxfp4":
                    parts = {key[len(module) + 1:]: value for key, value in same.items() if key.startswith(module + ".")}
                    theirs = fp4_by_hand(parts, "mxfp4")
                else:
                    theirs = same[module + ".weight"].float().numpy() * same[module + ".weight_scale"].float().numpy()
                good = good and np.array_equal(ours.astype(np.float32), theirs.astype(np.float32))
            expect(good, f"{method} {name}: {len(modules)} weights unpacked by hand are those of compressed-tensors")


def main():
    forward.compute_dynamic_scales_and_zp = mended_dynamic_scales
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
                steps = scheme in ("fp8d", "w8a8 tokens", "w8a8c static")
                if steps:
                    compare_short_windows(name, scheme, first_block(source, work), flags, data, ids, work)
                model = compare_perplexities(name, scheme, source, flags, data, ids, out,
                                             bound_of_runs if steps else exact_bound)
                config = json.load(open(os.path.join(out, "config.json")))["quantization_config"]
                if config["format"] == "pack-quantized":
                    args = config["config_groups"]["group_0"]["weights"]
                    tensors, loaded = tensors_of(out), dict(model.named_parameters())
                    packed = [key[:-len(".weight_packed")] for key in tensors if key.endswith(".weight_packed")]
                    worst = max(np.abs(by_hand(tensors, module, args) - loaded[module + ".weight"].numpy(force=True)).max()
                                for module in packed if module + ".weight" in loaded)
                    expect(worst < 1e-6, f"{name} {scheme}: {len(packed)} weights unpacked by hand, off by {worst:.1e}")
        source = os.path.join(MODELS, "llama-9m")
        other_layouts(work, source)
        for scheme in ("nvfp4", "mxfp4"):
            out = os.path.join(work, scheme)
            run("quantize", source, "--scheme", scheme, "-o", out)
            config = json.load(open(os.path.join(out, "config.json")))["quantization_config"]
            group = QuantizationScheme(**{k: v for k, v in config["config_groups"]["group_0"].items()})
            tensors = tensors_of(out)
            compressor = BaseCompressor.get_value_from_registry(config["format"])
            for module in [key[:-len(".weight_packed")] for key in tensors if key.endswith(".weight_packed")]:
                parts = {key[len(module) + 1:]: value for key, value in tensors.items() if key.startswith(module + ".")}
                theirs = compressor.decompress(dict(parts), group)["weight"].float().numpy()
                ours = fp4_by_hand(parts, scheme)
                # What it multiplied in float32, it rounds to bfloat16.
                rounded = torch.from_numpy(ours).bfloat16().float().numpy()
                expect(np.array_equal(theirs, rounded), f"{scheme} {module}: compressed-tensors' own decompression")
                exact = tensors_of(source)[module + ".weight"].float().numpy()
                lost = np.linalg.norm(ours - exact) / np.linalg.norm(exact)
                expect(lost < 0.15, f"{scheme} {module}: off by {lost:.3f} of the float weight")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
