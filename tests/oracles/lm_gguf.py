"""lm_gguf.py KAON MODELS: GGUF files that `kaon quantize` writes, against llama.cpp itself (llama-cpp-python).

It must load them and give Kaon's logits, to the noise of its arithmetic: float32 with F32 weights, inputs rounded to
float16 with F16 and to 8 bits with the others. What its own quantizer makes of Kaon's F32 file must have the same types
tensor for tensor, and the same bytes in types without super-blocks; in the others Kaon's must be as near to the float
weights, and its perplexity no higher, but for the chance in how a model takes rounding: files of gpt2-5m whose weights
are nearer to the float ones have up to 0.5 % more or less."""
import ctypes
import json
import os
import subprocess
import sys
import tempfile

# A file beside this one bears the name of a package.
sys.path = [path for path in sys.path if os.path.abspath(path or ".") != os.path.dirname(os.path.abspath(__file__))]
try:
    import gguf
    import llama_cpp
    import numpy as np
except ImportError as error:
    print(f"no llama-cpp-python here ({error}); files were not compared")
    sys.exit(0)

KAON, MODELS = sys.argv[1:3]
THREADS = 2
TOKENS = 192
# Of logits, relative: what the arithmetic of llama.cpp differs by.
NOISE = {"f32": 1e-5, "f16": 3e-3, "bf16": 1e-2}
NOISE_OF_8_BITS = 0.04
NOISE_OF_GELU = 1e-3  # which it looks up in a table of float16
FILE_TYPES = {"f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "q2_k": 10, "q3_k_m": 12, "q4_k_m": 15,
              "q5_k_m": 17, "q6_k": 18, "iq4_nl": 25}
CHANCE = 5e-3
EXACT = {"F32", "F16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"}
failures = 0


def expect(good, what):
    global failures
    failures += not good
    print("ok  " if good else "FAIL", what, flush=True)


def kaon(*arguments):
    done = subprocess.run([KAON, *arguments, "-q", "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"kaon {' '.join(arguments)}: {done.stderr}")
    return json.loads(done.stdout)


def logits_of_kaon(model, ids, work):
    given, made = os.path.join(work, "ids.npz"), os.path.join(work, "logits.npz")
    np.savez(given, input_ids=ids[None].astype(np.int64))
    kaon("run", model, "--input", given, "-o", made)
    return np.load(made)["logits"][0]


def logits_of_llama_cpp(model, ids):
    f32 = llama_cpp.GGML_TYPE_F32
    llama = llama_cpp.Llama(model, n_ctx=256, n_batch=256, n_threads=THREADS, n_threads_batch=THREADS, logits_all=True,
                            type_k=f32, type_v=f32, verbose=False)
    llama.eval([int(token) for token in ids])
    logits = llama.scores[:len(ids)].copy()
    llama.close()
    return logits


def requantize(source, to, file_type):
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.nthread = file_type, THREADS
    if llama_cpp.llama_model_quantize(source.encode(), to.encode(), ctypes.byref(params)) != 0:
        raise SystemExit(f"llama.cpp does not quantize {source}")


def tensors_of(file):
    return {t.name: (t.tensor_type.name, np.ascontiguousarray(t.data).tobytes()) for t in gguf.GGUFReader(file).tensors}


def perplexity(file, data):
    return kaon("eval", file, "--data", data, "--metric", "ppl")["metrics"]["ppl"]


def lost_by_type(file, exact):
    """The mean distance from the float weights, relative, of the tensors of each type."""
    lost = {}
    for tensor in gguf.GGUFReader(file).tensors:
        if tensor.tensor_type.name not in EXACT:
            back = gguf.quants.dequantize(np.ascontiguousarray(tensor.data), tensor.tensor_type).reshape(-1)
            lost.setdefault(tensor.tensor_type.name, []).append(
                np.linalg.norm(back - exact[tensor.name]) / np.linalg.norm(exact[tensor.name]))
    return {kind: np.mean(values) for kind, values in lost.items()}


def compare_quantizers(name, scheme, exact, ours, theirs, data):
    mine, other = tensors_of(ours), tensors_of(theirs)
    types = {key: (mine.get(key, ("none",))[0], value[0]) for key, value in other.items()}
    different = [f"{key} {a}, not {b}" for key, (a, b) in types.items() if a != b]
    expect(not different and len(mine) == len(other),
           f"{name} {scheme}: types as llama.cpp's {'; '.join(different[:4])}")
    plain = [key for key, (_, kind) in types.items() if kind in EXACT]
    wrong = [key for key in plain if mine[key] != other[key]]
    expect(not wrong, f"{name} {scheme}: the bytes of {len(plain)} tensors {', '.join(wrong[:4])}")
    floats = {t.name: np.asarray(t.data, np.float32).reshape(-1) for t in gguf.GGUFReader(exact).tensors}
    here, there = lost_by_type(ours, floats), lost_by_type(theirs, floats)
    for kind in here:
        expect(here[kind] <= there[kind] * (1 + CHANCE),
               f"{name} {scheme}: {kind} off by {here[kind]:.5f}, llama.cpp's by {there[kind]:.5f}")
    if not here:
        return
    here, there = perplexity(ours, data), perplexity(theirs, data)
    expect(here <= there * (1 + CHANCE), f"{name} {scheme}: perplexity {here:.4f}, of llama.cpp's file {there:.4f}")


def main():
    quiet = llama_cpp.llama_log_callback(lambda level, text, user: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    text = os.path.abspath(os.path.join(MODELS, "..", "data", "text", "docs_valid.txt"))
    with tempfile.TemporaryDirectory() as work:
        data = os.path.join(work, "windows.json")
        json.dump({"text": text, "window": 256, "stride": 256, "limit": 24}, open(data, "w"))
        for name in ("llama-9m", "gpt2-5m", "stories260K"):
            source = os.path.join(MODELS, name)
            if not os.path.isdir(source):
                print(f"{source} is not there; its files were not compared")
                continue
            vocabulary = json.load(open(os.path.join(source, "config.json")))["vocab_size"]
            ids = np.random.default_rng(1).integers(3, vocabulary, TOKENS)
            exact = os.path.join(work, "f32.gguf")
            for scheme in ("f32", "bf16", "mxfp4", *FILE_TYPES):
                ours, theirs = os.path.join(work, scheme + ".gguf"), os.path.join(work, "theirs.gguf")
                kaon("quantize", source, "--scheme", scheme, "-o", ours)
                mine, other = logits_of_kaon(ours, ids, work), logits_of_llama_cpp(ours, ids)
                lost = np.linalg.norm(mine - other) / np.linalg.norm(mine)
                bound = max(NOISE.get(scheme, NOISE_OF_8_BITS), NOISE_OF_GELU if name.startswith("gpt2") else 0)
                expect(lost < bound, f"{name} {scheme}: logits off by {lost:.1e}, within {bound:.0e}")
                # Rows of 172, which stories260K has, are no whole blocks, and llama.cpp's quantizer refuses them.
                if scheme == "f16" or (scheme in FILE_TYPES and name != "stories260K"):
                    requantize(exact, theirs, FILE_TYPES[scheme])
                    compare_quantizers(name, scheme, exact, ours, theirs, data)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
