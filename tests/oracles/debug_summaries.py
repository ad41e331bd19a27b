"""debug_summaries.py KAON DEBUG_DUMP FOLDER...: the four summaries of `kaon debug`, computed a second time with NumPy.

For each quantizer DEBUG_DUMP gives r (float run), x and q (before and behind it in the quantized run). Here
 - r is what ONNX Runtime computes from the float model, to R_CLOSE of the largest value;
 - q is what ONNX Runtime's QuantizeLinear and DequantizeLinear make of x, exactly (8-bit integers with one scale);
 - mean |q - x| / (|x| + 1e-12), mean |x - r| / (|r| + 1e-12), mean |q - r| / (|r| + 1e-12) and the weights' own are
   those of summary.json to CLOSE, and so are SQNR, the cumulative error and the clipped share."""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

CASES = [("resnet20_cifar10_fp32.onnx", (3, 32, 32), 10, 4, ["w8a8", "w8a8c", "w8a8d", "fp8"]),
         ("mobilenetv2_1.0_224_imagenet_fp32.onnx", (3, 224, 224), 2, 2, ["w8a8"])]
CLOSE = 1e-5
R_CLOSE = 1e-4
CODES = {"uint8": (TensorProto.UINT8, np.uint8), "int8": (TensorProto.INT8, np.int8)}


def relative(value, reference):
    value, reference = value.astype(np.float64), reference.astype(np.float64)
    return float(np.mean(np.abs(value - reference) / (np.abs(reference) + 1e-12)))


def qdq(x, scale, zero_point, kind):
    """One QuantizeLinear and DequantizeLinear."""
    onnx_type, dtype = CODES[kind]
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["c"]),
             helper.make_node("DequantizeLinear", ["c", "s", "z"], ["y"])]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None])],
        [helper.make_tensor("s", TensorProto.FLOAT, [], [scale]), helper.make_tensor("z", onnx_type, [], [zero_point])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x.reshape(-1)})[0].reshape(x.shape)


def float_values(path, names, feeds):
    """Values of the float model, those of its names that the file has."""
    model = onnx.load(path)
    made = {output for node in model.graph.node for output in node.output}
    names = [name for name in names if name in made]
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip(names, session.run(names, feeds)))


class Failures(list):
    def close(self, what, value, expected, tolerance=CLOSE):
        if value is None or not abs(value - expected) <= tolerance * max(abs(expected), 1e-9):
            self.append(f"{what}: {value} in summary.json, {expected} here")


def compare(kaon, dump, path, shape, samples, batch, scheme, folder, failures):
    model = onnx.load(path, load_external_data=False)
    name = model.graph.input[0].name
    data = os.path.join(folder, "data.npz")
    rng = np.random.default_rng(5)
    np.savez(data, **{name: rng.uniform(-1, 1, (samples, *shape)).astype(np.float32)})
    out = os.path.join(folder, scheme)
    subprocess.run([dump, path, data, str(batch), out, scheme], check=True)
    subprocess.run([kaon, "debug", path, "--scheme", scheme, "--data", data, "--batch", str(batch),
                    "-o", out + "_debug", "-q"], check=True, stdout=subprocess.DEVNULL)
    summary = json.load(open(os.path.join(out + "_debug", "summary.json")))
    rows = {row["id"]: row for row in summary["quantizers"]}
    plan = json.load(open(os.path.join(out, "plan.json")))
    values = np.load(os.path.join(out, "values.npz"))
    if len(rows) != len(plan):
        failures.append(f"{scheme}: {len(rows)} quantizers in summary.json, {len(plan)} in the model")
        return 0
    batches = (samples + batch - 1) // batch
    tensors = [quantizer["tensor"] for quantizer in plan]
    exact = [float_values(path, tensors, {name: values[f"{b}:in:{name}"]}) for b in range(batches)]
    compared = 0
    for quantizer in plan:
        row = rows[quantizer["id"]]
        what = f"{os.path.basename(path)} {scheme} {row['layer']}.{row['slot']}"
        if quantizer["kind"] in ("weight", "bias"):
            x, q = values[f"{quantizer['id']}:x"], values[f"{quantizer['id']}:q"]
            r = x
        else:
            parts = {key: [values[f"{b}:{quantizer['id']}:{key}"] for b in range(batches)] for key in "rxq"}
            for b, theirs in enumerate(exact):
                ours = parts["r"][b]
                if quantizer["tensor"] not in theirs:
                    continue
                other = theirs[quantizer["tensor"]]
                if np.max(np.abs(ours - other)) > R_CLOSE * np.max(np.abs(other)):
                    failures.append(f"{what}: the float run is not ONNX Runtime's")
                compared += 1
            r, x, q = (np.concatenate([part.reshape(-1) for part in parts[key]]) for key in "rxq")
        if quantizer["format"] in CODES and len(quantizer["scale"]) == 1:
            zero = (quantizer["zero_point"] or [0])[0]
            if not np.array_equal(qdq(x, quantizer["scale"][0], zero, quantizer["format"]), q):
                failures.append(f"{what}: q is not what ONNX Runtime makes of x")
            low, high = np.iinfo(CODES[quantizer["format"]][1]).min, np.iinfo(CODES[quantizer["format"]][1]).max
            codes = np.rint(x / np.float32(quantizer["scale"][0])) + zero
            failures.close(f"{what} clipped", row["clipped"], float(np.mean((codes < low) | (codes > high))))
        failures.close(f"{what} io", row["mean_relative_error"], relative(q, x))
        failures.close(f"{what} ref_input", row["ref_input_error"], relative(x, r))
        failures.close(f"{what} ref_output", row["ref_output_error"], relative(q, r))
        x64, q64, r64 = (value.astype(np.float64) for value in (x, q, r))
        error = np.sum((q64 - x64) ** 2)
        if error > 0:
            failures.close(f"{what} sqnr_db", row["sqnr_db"], 10 * np.log10(np.sum(x64 ** 2) / error))
        failures.close(f"{what} cumulative", row["cumulative_error"],
                       float(np.sqrt(np.sum((q64 - r64) ** 2) / np.sum(r64 ** 2))))
    if compared == 0 and any(quantizer["kind"] in ("input", "output") for quantizer in plan):
        failures.append(f"{scheme}: no value of the float run was compared with ONNX Runtime")
    return len(plan)


def main():
    kaon, dump, *folders = sys.argv[1:]
    failures = Failures()
    for file, shape, samples, batch, schemes in CASES:
        paths = [os.path.join(folder, file) for folder in folders if os.path.exists(os.path.join(folder, file))]
        if not paths:
            print(f"{file} is not there; not compared")
            continue
        for scheme in schemes:
            with tempfile.TemporaryDirectory() as folder:
                count = compare(kaon, dump, paths[0], shape, samples, batch, scheme, folder, failures)
                print(f"{file} {scheme}: {count} quantizers compared")
    for failure in failures[:40]:
        print(failure)
    return 1 if failures else 0


sys.exit(main())
