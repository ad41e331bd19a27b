"""gguf_folders.py KAON MODELS: GGUF files that `kaon quantize` writes, against the `gguf` package.

Every tensor of the types without super-blocks must hold the bytes that the package's own rounding gives; K-quants must
dequantize through the package to something near the float weights. Metadata and tokenizer are those of the folder."""
import json
import os
import struct
import subprocess
import sys
import tempfile

# A file beside this one bears the name of a package.
sys.path = [path for path in sys.path if os.path.abspath(path or ".") != os.path.dirname(os.path.abspath(__file__))]
try:
    import gguf
    import numpy as np
except ImportError as error:
    print(f"no gguf here ({error}); files were not compared")
    sys.exit(0)

KAON, MODELS = sys.argv[1:3]
LAYER = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
OTHER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
BOUNDS = {"Q2_K": 0.35, "Q3_K": 0.2, "Q4_K": 0.09, "Q5_K": 0.045, "Q6_K": 0.025, "IQ4_NL": 0.1, "MXFP4": 0.16}
failures = 0


def expect(good, what):
    global failures
    failures += not good
    if not good:
        print("FAIL", what, flush=True)


def name_of(hub):
    module, kind = hub.rsplit(".", 1)
    if module in OTHER:
        return f"{OTHER[module]}.{kind}"
    _, _, number, rest = module.split(".", 3)
    return f"blk.{number}.{LAYER[rest]}.{kind}"


def permuted(weights, heads):
    return weights.reshape(heads, 2, weights.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(weights.shape)


def bfloat16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def float_tensors(folder):
    """By their GGUF names; read by hand where NumPy lacks the type."""
    found = {}
    for file in sorted(os.listdir(folder)):
        if not file.endswith(".safetensors"):
            continue
        data = open(os.path.join(folder, file), "rb").read()
        size, = struct.unpack("<Q", data[:8])
        for name, row in json.loads(data[8:8 + size]).items():
            if name == "__metadata__":
                continue
            begin, end = (8 + size + at for at in row["data_offsets"])
            kind = {"BF16": np.uint16, "F16": np.float16, "F32": np.float32}[row["dtype"]]
            values = np.frombuffer(data[begin:end], kind).reshape(row["shape"])
            values = bfloat16(values) if row["dtype"] == "BF16" else values.astype(np.float32)
            if ".q_proj." in name or ".k_proj." in name:
                values = permuted(values, 6 if ".q_proj." in name else 2)
            found[name_of(name)] = values
    return found


def main():
    source = os.path.join(MODELS, "llama-9m")
    if not os.path.isdir(source):
        print(f"{source} is not there; files were not compared")
        return
    floats = float_tensors(source)
    with tempfile.TemporaryDirectory() as work:
        for scheme in ("f16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k_m", "q4_k_m", "q5_k_m", "q6_k",
                       "iq4_nl", "mxfp4"):
            out = os.path.join(work, scheme + ".gguf")
            done = subprocess.run([KAON, "quantize", source, "--scheme", scheme, "-o", out, "-q"], capture_output=True, text=True)
            if done.returncode != 0:
                expect(False, f"{scheme}: {done.stderr}")
                continue
            reader = gguf.GGUFReader(out)
            expect(sorted(t.name for t in reader.tensors) == sorted(floats), f"{scheme}: other tensors")
            types = {}
            for tensor in reader.tensors:
                kind = tensor.tensor_type
                types[kind.name] = types.get(kind.name, 0) + 1
                exact = floats[tensor.name]
                data = np.ascontiguousarray(tensor.data)
                if kind.name in BOUNDS:
                    back = gguf.quants.dequantize(data, kind).reshape(exact.shape)
                    lost = np.linalg.norm(back - exact) / np.linalg.norm(exact)
                    expect(lost < BOUNDS[kind.name], f"{scheme} {tensor.name} {kind.name}: off by {lost:.4f}")
                else:
                    expected = gguf.quants.quantize(exact, kind)
                    same = data.tobytes() == expected.tobytes()
                    expect(same, f"{scheme} {tensor.name} {kind.name}: other bytes than the package's")
            print(scheme, types, flush=True)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
