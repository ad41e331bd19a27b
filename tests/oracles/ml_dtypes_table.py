#!/usr/bin/env python3
"""Writes tests/data/ml_dtypes.txt: how ml_dtypes (without saturation) and ONNX's Cast (with it) encode every float32.

Run by hand in an environment that has numpy, ml_dtypes, onnx and onnxruntime. Encoding is piecewise constant over the
bit patterns of float32, so a table of the first pattern of each piece is the whole function:

  > decode NAME        one float32 bit pattern for each code
  > encode NAME        "first-bits code" for each piece, non-saturating
  > saturate NAME      the same with Cast's saturate=1

Pieces are found by looking at both ends of every 256 bit patterns, and at all of them where the ends differ. ONNX
Runtime's own Cast is compared on the way: with saturation it agrees; without, it has its own idea of fp8_e4m3 beyond
480 and of fp8_e5m2 beyond 61440.
"""
import pathlib
import sys

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

FORMATS = {
    "fp8_e4m3": ("float8_e4m3fn", 8, TensorProto.FLOAT8E4M3FN),
    "fp8_e4m3fnuz": ("float8_e4m3fnuz", 8, TensorProto.FLOAT8E4M3FNUZ),
    "fp8_e5m2": ("float8_e5m2", 8, TensorProto.FLOAT8E5M2),
    "fp8_e5m2fnuz": ("float8_e5m2fnuz", 8, TensorProto.FLOAT8E5M2FNUZ),
    "fp6_e3m2": ("float6_e3m2fn", 6, None),
    "fp6_e2m3": ("float6_e2m3fn", 6, None),
    "fp4_e2m1": ("float4_e2m1fn", 4, None),
}
STRIDE = 256


def pieces(encode):
    """[(first bits, code)] over all 2^32 patterns."""
    found = []
    for begin in range(0, 1 << 32, 1 << 26):
        bits = np.arange(begin, begin + (1 << 26), STRIDE, dtype=np.uint64)
        low = encode(bits.astype(np.uint32))
        high = encode((bits + STRIDE - 1).astype(np.uint32))
        if not found or found[-1][1] != low[0]:
            found.append((begin, int(low[0])))
        starts = np.zeros(len(bits), bool)
        starts[1:] = low[1:] != high[:-1]
        for i in np.flatnonzero(starts | (low != high)):
            if starts[i]:
                found.append((int(bits[i]), int(low[i])))
            if low[i] != high[i]:
                inside = np.arange(bits[i], bits[i] + STRIDE, dtype=np.uint64)
                codes = encode(inside.astype(np.uint32))
                for j in np.flatnonzero(codes[1:] != codes[:-1]) + 1:
                    found.append((int(inside[j]), int(codes[j])))
    return found


def expand(table, bits):
    firsts = np.array([first for first, _ in table], dtype=np.uint64)
    codes = np.array([code for _, code in table], dtype=np.uint8)
    return codes[np.searchsorted(firsts, bits.astype(np.uint64), side="right") - 1]


def onnxruntime_cast(values, to, saturate):
    """float32 -> fp8 -> float32 on ONNX Runtime."""
    there = helper.make_node("Cast", ["x"], ["y"], to=to, saturate=saturate)
    back = helper.make_node("Cast", ["y"], ["z"], to=TensorProto.FLOAT)
    graph = helper.make_graph([there, back], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None])],
                              [helper.make_tensor_value_info("z", TensorProto.FLOAT, [None])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": values})[0]


def compare_with_onnxruntime(name, table, dtype, to, saturate):
    """Reports where ONNX Runtime's Cast differs at any float16 or beside the border of two pieces."""
    borders = np.array([first + d for first, _ in table for d in (-1, 0, 1) if 0 <= first + d < 1 << 32], np.uint32)
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32).view(np.uint32)
    bits = np.concatenate([borders, halves])
    ours = expand(table, bits).view(dtype).astype(np.float32)
    theirs = onnxruntime_cast(bits.view(np.float32), to, saturate)
    same = (ours == theirs) & (np.signbit(ours) == np.signbit(theirs)) | np.isnan(ours) & np.isnan(theirs)
    odd = [(float(x), float(a), float(b)) for x, a, b in
           zip(bits.view(np.float32)[~same], ours[~same], theirs[~same])]
    print(f"ONNX Runtime, {name}, saturate={saturate}: {len(bits)} inputs, {len(odd)} differ {odd[:4]}",
          file=sys.stderr)


def main():
    lines = [f"# ml_dtypes {ml_dtypes.__version__}, onnx {onnx.__version__}; made by tests/oracles/ml_dtypes_table.py"]
    for name, (dtype_name, bits, onnx_type) in FORMATS.items():
        dtype = getattr(ml_dtypes, dtype_name)
        codes = np.arange(1 << bits, dtype=np.uint8)
        values = codes.view(dtype).astype(np.float32).view(np.uint32)
        lines.append(f"> decode {name}")
        lines += [f"{value:08x}" for value in values]
        tables = {"encode": pieces(lambda b: b.view(np.float32).astype(dtype).view(np.uint8))}
        if onnx_type is not None:
            tables["saturate"] = pieces(
                lambda b: numpy_helper.saturate_cast(b.view(np.float32), np.dtype(dtype)).view(np.uint8))
        for kind, table in tables.items():
            lines.append(f"> {kind} {name}")
            lines += [f"{first:08x} {code:02x}" for first, code in table]
            print(f"{kind} {name}: {len(table)} pieces", file=sys.stderr)
            if onnx_type is not None:
                compare_with_onnxruntime(name, table, dtype, onnx_type, int(kind == "saturate"))
    e8m0 = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float32).view(np.uint32)
    lines.append("> decode e8m0")
    lines += [f"{value:08x}" for value in e8m0]
    path = pathlib.Path(__file__).parent.parent / "data" / "ml_dtypes.txt"
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    np.seterr(all="ignore")
    main()
