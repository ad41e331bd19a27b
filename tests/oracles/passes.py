"""passes.py PASS_ONNX FOLDER...: each graph pass leaves the outputs of real models as they were.

Bit for bit, except fold_batch_norm, which rounds elsewhere, and constant_folding, which computes with Kaon's kernels:
there the error must lie 100 dB below the signal."""
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import helper, numpy_helper
from models import find_models, make_inputs, rewrite, session, worst_difference, worst_sqnr

EXACT = ["constants_to_initializers", "eliminate_identity", "remove_dead_nodes"]
ROUNDING = ["fold_batch_norm", "constant_folding"]
RUNS = [[name] for name in EXACT] + [[name, "constants_to_initializers"] for name in ROUNDING] + [EXACT + ROUNDING]
LEAST_DB = 100.0


def norm_cases():
    """Layers of every layout with a norm behind them: (name, model, feeds)."""
    random = np.random.default_rng(3)

    def floats(*shape):
        return random.standard_normal(shape).astype(np.float32)

    def case(name, op, weight, channels, x, bias=None, **attributes):
        constants = {"w": weight, "g": floats(channels), "b": floats(channels), "m": floats(channels),
                     "v": np.abs(floats(channels)) + 0.1}
        if bias is not None:
            constants["c"] = bias
        nodes = [helper.make_node(op, ["x", "w"] + (["c"] if bias is not None else []), ["a"], **attributes),
                 helper.make_node("BatchNormalization", ["a", "g", "b", "m", "v"], ["y"], epsilon=1e-3)]
        graph = helper.make_graph(nodes, name, [helper.make_tensor_value_info("x", 1, x.shape)],
                                  [onnx.ValueInfoProto(name="y")],
                                  [numpy_helper.from_array(v, k) for k, v in constants.items()])
        return name, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), {"x": x}

    x = floats(2, 6, 7, 7)
    yield case("conv", "Conv", floats(4, 6, 3, 3), 4, x)
    yield case("conv_groups", "Conv", floats(4, 3, 3, 3), 4, x, floats(4), group=2)
    yield case("conv_depthwise", "Conv", floats(6, 1, 3, 3), 6, x, group=6)
    yield case("conv_1d", "Conv", floats(4, 6, 3), 4, floats(2, 6, 9))
    yield case("transposed", "ConvTranspose", floats(6, 4, 3, 3), 4, x, floats(4))
    yield case("transposed_groups", "ConvTranspose", floats(6, 4, 3, 3), 8, x, group=2)
    rows = floats(5, 6)
    yield case("gemm", "Gemm", floats(6, 4), 4, rows)
    yield case("gemm_alpha_beta", "Gemm", floats(4, 6), 4, rows, floats(4), transB=1, alpha=0.5, beta=3.0)
    yield case("gemm_scalar", "Gemm", floats(6, 4), 4, rows, floats(1))
    yield case("gemm_row", "Gemm", floats(6, 4), 4, rows, floats(1, 4))


def check_norm_cases(tool, scratch):
    source, out = os.path.join(scratch, "case.onnx"), os.path.join(scratch, "case_out.onnx")
    failures = 0
    for name, model, feeds in norm_cases():
        onnx.save(model, source)
        changes, error = rewrite(tool, source, out, ["fold_batch_norm"])
        if error is None and changes != 1:
            error = "nothing was folded"
        if error is None:
            db = worst_sqnr(session(source).run(None, feeds), session(out).run(None, feeds))
            error = None if db >= LEAST_DB else f"only {db:.1f} dB"
        print(f"norm behind {name}: {error or 'folded'}")
        failures += error is not None
    return failures


def rewrite_all(tool, path, outs):
    """(number of changes, error) for each of RUNS, from one start of the tool."""
    words = [word for run, out in zip(RUNS, outs) for word in ("--", path, out, *run)][1:]
    done = subprocess.run([tool, *words], capture_output=True, text=True, timeout=300)
    found = [(int(line), None) for line in done.stdout.split()]
    return found + [(None, done.stderr.strip() or f"exit {done.returncode}")] * (len(RUNS) - len(found))


def main():
    tool, folders = sys.argv[1], sys.argv[2:]
    failures, total = 0, {}
    paths = find_models(folders)
    with tempfile.TemporaryDirectory() as scratch:
        failures += check_norm_cases(tool, scratch)
        for path in paths:
            before = session(path)
            feeds = make_inputs(path, before)
            expected = before.run(None, feeds)
            outs = [os.path.join(scratch, f"out_{i}.onnx") for i in range(len(RUNS))]
            for words, out, (changes, error) in zip(RUNS, outs, rewrite_all(tool, path, outs)):
                label = "+".join(words)
                if error is None and changes == 0:
                    note = "nothing to compare (oracles.copies compares files that were only read and written)"
                elif error is None:
                    total[label] = total.get(label, 0) + changes
                    onnx.checker.check_model(out)
                    got = session(out).run(None, feeds)
                    if set(words) & set(ROUNDING):
                        db = worst_sqnr(expected, got)
                        error = None if db >= LEAST_DB else f"only {db:.1f} dB"
                        note = f"{db:.1f} dB"
                    else:
                        gap = worst_difference(expected, got)
                        error = f"outputs differ by {gap:.3g}" if gap else None
                        note = "equal"
                print(f"{os.path.basename(path)} {label}: {changes} changes: {error or note}")
                failures += error is not None
    if not paths:
        print("no models in", folders)
    for words in RUNS:
        if paths and not total.get("+".join(words)):
            print("+".join(words), "changed nothing in any model")
            failures += 1
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
