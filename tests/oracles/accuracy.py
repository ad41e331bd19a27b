"""Is a quantized file of ours as good as the one that ONNX Runtime's own quantizer makes?

accuracy.py KAON MODELS… [--full]

Static int8, per-channel weights, the same calibration images, for min_max and entropy each (ResNet20; MobileNetV2 with
min_max alone; --full: percentile too, ResNet56, and all methods on all). Both files run in ONNX Runtime without optimisations. Ours must reach its
SQNR against the float model minus 0.5 dB, and its top-1 minus 0.3 points (CIFAR-10) or 1.0 (ImageNet). The simulation,
the file and the optimised file must name the same classes but for 0.1 and 0.5 points. Weight-only losses of a language
model are compared with an independent computation here, and file sizes with their bounds.
"""
import contextlib
import io
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static

import models
from real_data import Data

METHODS = {"min_max": CalibrationMethod.MinMax, "percentile": CalibrationMethod.Percentile,
           "entropy": CalibrationMethod.Entropy}
# What ONNX Runtime runs; its optimised form needs a session setting on some processors.
RUNNABLE = ["w8", "w8c", "w4g32", "w4g128", "w4g32s", "w4g128s", "w4c", "w8a8", "w8a8c", "w8a8d", "w8a8dc", "a16w8", "fp8", "fp8d",
            "fp16", "bf16"]
LOSSES = {"w8": 1.6173, "w8c": 1.6142, "w4g32": 1.7034, "w4g32s": 1.7812, "w4c": 1.8269}
failures = []


def check(ok, line):
    print(("ok    " if ok else "WRONG ") + line, flush=True)
    if not ok:
        failures.append(line)


class Reader(CalibrationDataReader):
    def __init__(self, name, x):
        self.items = iter([{name: x[i:i + 1]} for i in range(len(x))])

    def get_next(self):
        return next(self.items, None)


def logits(path, name, x, batch=50):
    running = models.session(path)
    return np.concatenate([running.run(None, {name: x[i:i + batch]})[0] for i in range(0, len(x), batch)])


def kaon_quantize(kaon, *words):
    done = subprocess.run([kaon, "quantize", *words, "--json", "-q"], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"kaon quantize {' '.join(words)}: {done.stderr}")
    return json.loads(done.stdout)


def compare_static(kaon, model, methods, calibration, x, labels, slack, work, size_bound):
    name = models.session(model).get_inputs()[0].name
    stem = os.path.basename(model).split("_")[0]
    exact = logits(model, name, x)
    print(f"      {stem}: float top-1 {np.mean(exact.argmax(1) == labels):.4f} on {len(x)} images")
    np.savez(f"{work}/calib.npz", **{name: calibration})
    # ONNX Runtime's quantizer writes beside the model that it reads.
    copy = shutil.copy(model, work)
    for observer in methods:
        method = METHODS[observer]
        theirs, ours = f"{work}/theirs.onnx", f"{work}/ours.onnx"
        with say_nothing():
            quantize_static(copy, theirs, Reader(name, calibration), quant_format=QuantFormat.QDQ, per_channel=True,
                            activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8, calibrate_method=method)
        report = kaon_quantize(kaon, model, "--scheme", "w8a8c", "--observer", observer, "--calib",
                               f"{work}/calib.npz", "-o", ours)
        a, b = logits(theirs, name, x), logits(ours, name, x)
        top = [np.mean(y.argmax(1) == labels) for y in (a, b)]
        db = [models.worst_sqnr([exact], [y]) for y in (a, b)]
        check(db[1] >= db[0] - 0.5 and top[1] >= top[0] - slack,
              f"{stem} {observer}: ours {db[1]:.2f} dB, top-1 {top[1]:.4f}; ONNX Runtime's {db[0]:.2f} dB, {top[0]:.4f}")
        if observer == "min_max":
            share = report["bytes_after"] / os.path.getsize(model)
            check(share <= size_bound, f"{stem}: the file is {share:.3f} of the float one, at most {size_bound}")


def optimised(path):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.x64quantprecision", "1")
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def compare_top1(kaon, model, schemes, calibration, x, labels, slack, work, optimised_slack):
    """The simulation, the file without optimisations and the file with them name the same classes."""
    name = models.session(model).get_inputs()[0].name
    stem = os.path.basename(model).split("_")[0]
    np.savez(f"{work}/calib.npz", **{name: calibration})
    np.savez(f"{work}/data.npz", **{name: x, "labels": labels})
    for scheme in schemes:
        report = kaon_quantize(kaon, model, "--scheme", scheme, "--calib", f"{work}/calib.npz", "--data",
                               f"{work}/data.npz", "-o", f"{work}/t.onnx")
        simulated = report["metrics_after"]["top1"]
        plain = np.mean(logits(f"{work}/t.onnx", name, x, 8).argmax(1) == labels)
        running = optimised(f"{work}/t.onnx")
        y = np.concatenate([running.run(None, {name: x[i:i + 8]})[0] for i in range(0, len(x), 8)])
        fast = np.mean(y.argmax(1) == labels)
        check(abs(simulated - plain) <= slack + 1e-9 and abs(fast - plain) <= optimised_slack + 1e-9,
              f"{stem} {scheme}: top-1 {simulated:.4f} simulated, {plain:.4f} in ONNX Runtime, {fast:.4f} optimised")


def rounded(w, scheme):
    """The weight [K, N] after quantizing, written once more from the definitions."""
    if scheme == "w8":
        scale = np.abs(w).max() / np.float32(127)
        return np.clip(np.rint(w / scale), -128, 127) * scale
    if scheme in ("w8c", "w4c"):
        top = np.float32(127 if scheme == "w8c" else 7)
        scale = np.abs(w).max(0) / top
        return np.clip(np.rint(w / scale), -top - 1, top) * scale
    groups = w.reshape(-1, 32, w.shape[1]) if w.shape[0] % 32 == 0 else None
    if groups is None:
        padded = np.full((-(-w.shape[0] // 32) * 32, w.shape[1]), np.nan, np.float32)
        padded[:w.shape[0]] = w
        groups = padded.reshape(-1, 32, w.shape[1])
    if scheme == "w4g32s":
        scale = np.nanmax(np.abs(groups), 1, keepdims=True) / np.float32(7)
        out = np.clip(np.rint(groups / scale), -8, 7) * scale
    else:
        low, high = np.minimum(np.nanmin(groups, 1, keepdims=True), 0), np.maximum(np.nanmax(groups, 1, keepdims=True), 0)
        scale = (high - low) / np.float32(15)
        zero = np.clip(np.rint(-low / scale), 0, 15)
        out = (np.clip(np.rint(groups / scale) + zero, 0, 15) - zero) * scale
    return out.reshape(-1, w.shape[1])[:w.shape[0]].astype(np.float32)


def loss(path, ids, labels):
    running = models.session(path)
    total = 0.0
    for i in range(0, len(ids), 16):
        y = running.run(None, {"input_ids": ids[i:i + 16]})[0].astype(np.float64)
        y -= y.max(-1, keepdims=True)
        picked = np.take_along_axis(y, labels[i:i + 16, :, None], -1)[..., 0]
        total += (np.log(np.exp(y).sum(-1)) - picked).sum()
    return total / labels.size


def compare_language_model(kaon, model, data, work):
    arrays = np.load(data)
    ids, labels = arrays["input_ids"], arrays["labels"]
    for scheme, stated in LOSSES.items():
        graph = onnx.load(model)
        constants = {i.name: i for i in graph.graph.initializer}
        float_bytes = 0
        for node in graph.graph.node:
            if node.op_type == "MatMul" and node.input[1] in constants:
                tensor = constants[node.input[1]]
                w = onnx.numpy_helper.to_array(tensor)
                float_bytes += w.nbytes
                tensor.CopyFrom(onnx.numpy_helper.from_array(np.ascontiguousarray(rounded(w, scheme)), tensor.name))
        onnx.save(graph, f"{work}/independent.onnx")
        report = kaon_quantize(kaon, model, "--scheme", scheme, "--exclude", "model.embed_tokens", "-o",
                               f"{work}/lm.onnx", "--data", data)
        independent, exported = loss(f"{work}/independent.onnx", ids, labels), loss(f"{work}/lm.onnx", ids, labels)
        simulated = report["metrics_after"]["loss"]
        agree = max(abs(simulated - stated), abs(simulated - independent), abs(exported - independent))
        check(report["layers"] == 36 and agree <= 0.002,
              f"stories260K {scheme}: loss {simulated:.4f}, in ONNX Runtime {exported:.4f}, computed independently "
              f"{independent:.4f}, stated {stated}")
        if scheme == "w4g32":
            codes = sum(t.ByteSize() for t in onnx.load(f"{work}/lm.onnx").graph.initializer
                        if t.data_type == onnx.TensorProto.UINT4) \
                + sum(t.ByteSize() for t in onnx.load(f"{work}/lm.onnx").graph.initializer if t.name.endswith("scale"))
            check(codes <= 0.17 * float_bytes, f"stories260K w4g32: weights take {codes / float_bytes:.3f} of float")


def compare_sizes(kaon, model, calibration, work):
    """4-bit groups on a CNN are never larger than int8."""
    name = models.session(model).get_inputs()[0].name
    np.savez(f"{work}/calib.npz", **{name: calibration[:2]})
    size = {scheme: kaon_quantize(kaon, model, "--scheme", scheme, "-o", f"{work}/s.onnx")["bytes_after"]
            for scheme in ("w8c", "w4g32")}
    check(size["w4g32"] <= size["w8c"], f"{os.path.basename(model)}: w4g32 {size['w4g32']} bytes, w8c {size['w8c']}")


def say_nothing():
    """ONNX Runtime's quantizer talks on stdout and through logging."""
    logging.disable(logging.WARNING)
    return contextlib.redirect_stdout(io.StringIO())


def main():
    full = "--full" in sys.argv
    kaon, *folders = [word for word in sys.argv[1:] if word != "--full"]
    root = next((f for f in folders if os.path.exists(f"{f}/../data/cifar10/test_batch.bin")), None)
    if root is None:
        print("no real models beside the checkout: nothing compared")
        return 0
    data = f"{root}/../data"
    with tempfile.TemporaryDirectory() as work:
        real = Data(data)
        count = 10000 if full else 1000
        x, labels = real.images("resnet20", 0, count), real.cifar_labels(0, count)
        calibration = x[:100]
        for stem in ("resnet20", "resnet56", "resnet8") if full else ("resnet20",):
            path = next(p for p in models.find_models([root]) if os.path.basename(p).startswith(stem + "_"))
            images = real.images(stem, 0, count)
            # 0.1 points of 10,000 images; of 1000 that is one image, and two may flip by chance.
            compare_top1(kaon, path, RUNNABLE if full else ["w8a8c", "w4g32"], images[:100], images, labels,
                         0.001 if full else 0.002, work, 0.005)
        few = list(METHODS) if full else ["min_max"]
        for stem in ("resnet20", "resnet56") if full else ("resnet20",):
            methods = list(METHODS) if full else ["min_max", "entropy"]
            compare_static(kaon, f"{root}/{stem}_cifar10_fp32.onnx", methods, calibration, x, labels, 0.003, work, 0.35)
        count = 1000 if full else 100
        calibration = real.images("mobilenetv2", 0, 50, "calib")
        x, labels = real.images("mobilenetv2", 0, count), real.imagenet_labels(0, count)
        mobilenet = f"{root}/mobilenetv2_1.0_224_imagenet_fp32.onnx"
        compare_static(kaon, mobilenet, few, calibration, x, labels, 0.01, work, 0.28)
        compare_sizes(kaon, mobilenet, calibration, work)
        if full:
            compare_top1(kaon, mobilenet, ["w8c", "w8a8c", "w8a8d", "a16w8", "fp8"], calibration, x, labels, 0.01, work,
                         0.01)
        compare_language_model(kaon, f"{root}/stories260K/model.onnx", f"{data}/text/tinystories_ids.npz", work)
    print(f"{len(failures)} wrong")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
