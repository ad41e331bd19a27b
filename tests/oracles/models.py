"""What the oracle scripts share: models, inputs for them, and ONNX Runtime without optimisations."""
import glob
import os
import subprocess
import zlib

import numpy as np
import onnxruntime as ort

ort.set_default_logger_severity(4)

TYPES = {
    "tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16, "tensor(bool)": np.bool_,
    "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(int8)": np.int8, "tensor(uint8)": np.uint8,
}
# Shapes and values that no rule of thumb gets right, by input name.
SHAPES = {"state": [2, 1, 128], "h": [2, 1, 64], "c": [2, 1, 64]}
VALUES = {"sr": np.array(16000, np.int64)}
WIDTHS = {"x": 160, "input": 512}  # of the last axis, where the model leaves it open


def find_models(folders):
    paths = []
    for folder in folders:
        paths += sorted(glob.glob(os.path.join(folder, "**", "*.onnx"), recursive=True))
    return paths


def session(path):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def make_inputs(path, running):
    stem = os.path.splitext(os.path.basename(path))[0]
    random = np.random.default_rng(zlib.crc32(stem.encode()))
    feeds = {}
    for value in running.get_inputs():
        if value.name in VALUES:
            feeds[value.name] = VALUES[value.name]
            continue
        shape = [d if isinstance(d, int) else 1 if i == 0 else WIDTHS.get(value.name, 8)
                 for i, d in enumerate(value.shape)]
        shape = SHAPES.get(value.name, shape)
        kind = TYPES[value.type]
        if value.name in ("attention_mask",):
            feeds[value.name] = np.ones(shape, kind)
        elif value.name in ("token_type_ids",):
            feeds[value.name] = np.zeros(shape, kind)
        elif np.issubdtype(kind, np.integer):
            feeds[value.name] = random.integers(0, 100, shape).astype(kind)
        else:
            feeds[value.name] = random.standard_normal(shape).astype(kind)
    return feeds


def worst_difference(before, after):
    """Largest |a − b| / max(1, |a|) over all outputs; 0 means bit-equal; inf where shape, type or NaNs differ."""
    worst = 0.0
    for a, b in zip(before, after, strict=True):
        if isinstance(a, list):
            worst = max(worst, worst_difference(a, b))
            continue
        if a is None or b is None:
            worst = max(worst, 0.0 if a is b else np.inf)
            continue
        a, b = np.asarray(a), np.asarray(b)
        if a.shape != b.shape or a.dtype != b.dtype:
            return np.inf
        if a.tobytes() == b.tobytes():
            continue
        if a.dtype.kind not in "fc" and a.dtype.name != "bfloat16":
            return np.inf
        a, b = a.astype(np.float64), b.astype(np.float64)
        if not np.array_equal(np.isnan(a), np.isnan(b)):
            return np.inf
        with np.errstate(invalid="ignore"):
            gap = np.where((a == b) | np.isnan(a), 0, np.abs(a - b) / np.maximum(1, np.abs(a)))
        worst = max(worst, float(gap.max(initial=0)), np.finfo(np.float64).tiny)
    return worst


def worst_sqnr(before, after):
    """Lowest over all outputs, in dB; -inf where shape, type or the places of NaN and Inf differ."""
    worst = np.inf
    for a, b in zip(before, after, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return -np.inf
        a, b = a.astype(np.float64), b.astype(np.float64)
        if not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return -np.inf
        noise = np.square(a - b)[np.isfinite(a)].sum()
        if noise > 0:
            worst = min(worst, 10 * np.log10(np.square(a[np.isfinite(a)]).sum() / noise))
    return worst


def rewrite(tool, path, out, words):
    """Runs the tool; gives the number of changes, or the error message."""
    done = subprocess.run([tool, path, out, *words], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        return None, done.stderr.strip() or f"exit {done.returncode}"
    return int(done.stdout), None
