"""gguf_types.py COPY_FILE ...: random blocks of every tensor type dequantize to the bits that the gguf package gives.

gguf_types.py --write FOLDER: the small files under tests/data that hold the same to account without this package."""
import os
import subprocess
import sys
import tempfile

import gguf
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

# Bytes at which a float16 scale begins.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": []}
PLAIN = {"F32": np.float32, "F16": np.float16, "F64": np.float64, "I8": np.int8, "I16": np.int16, "I32": np.int32,
         "I64": np.int64}


def make(path, blocks, seed):
    """Writes a file with `blocks` blocks a row, two rows, of every type; returns what its tensors must be."""
    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, "kaon-test")
    writer.add_uint32("test.number", 7)
    writer.add_array("test.words", ["a", "", "ü"])
    writer.add_array("test.scores", [0.5, -1.25])
    expected = {}
    for name, offsets in SCALES.items():
        kind = GGMLQuantizationType[name]
        size = GGML_QUANT_SIZES[kind][1]
        raw = rng.integers(0, 256, (2, blocks, size), dtype=np.uint8)
        for at in offsets:
            scale = rng.normal(0, 1e-2, (2, blocks)).astype(np.float16)
            scale[0, 0] = np.float16(3e-7)  # subnormal
            raw[:, :, at : at + 2] = scale[:, :, None].view(np.uint8)
        if name == "MXFP4":
            raw[0, :, 0] = np.arange(blocks) % 255
        raw = raw.reshape(2, -1)
        writer.add_tensor(name, raw, raw_dtype=kind)
        expected[name] = gguf.dequantize(raw, kind)
    raw = rng.normal(0, 1, (2, blocks * 2)).astype(np.float32).view(np.uint32) >> 16
    raw = raw.astype(np.uint16)
    writer.add_tensor("BF16", raw.view(np.uint8), raw_dtype=GGMLQuantizationType.BF16)
    expected["BF16"] = gguf.dequantize(raw.view(np.uint8), GGMLQuantizationType.BF16)
    for name, dtype in PLAIN.items():
        expected[name] = rng.normal(0, 50, (2, 3, blocks)).astype(dtype)
        writer.add_tensor(name, expected[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected


def main():
    if sys.argv[1] == "--write":
        expected = make(os.path.join(sys.argv[2], "gguf_types.gguf"), 2, 1)
        np.savez(os.path.join(sys.argv[2], "gguf_types.npz"), **expected)
        return 0
    failures = 0
    with tempfile.TemporaryDirectory() as scratch:
        for seed, blocks in enumerate([1, 7, 300]):
            path, copy = os.path.join(scratch, "x.gguf"), os.path.join(scratch, "x.npz")
            expected = make(path, blocks, seed)
            subprocess.run([sys.argv[1], path, copy], check=True, timeout=120)
            got = np.load(copy)
            for name, values in expected.items():
                same = got[name].shape == values.shape and got[name].tobytes() == values.tobytes()
                if not same:
                    print(f"failed: {name}, {blocks} blocks")
                    failures += 1
    print(f"{len(expected)} types: {failures} differences")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
