"""half_models.py KAON MODELS…: ResNet20 with its weights in 16 bits, and in float16 throughout, quantized for ONNX Runtime.

The files of the 16-bit model and of the float32 model with the same numbers must say the same: bit for bit where the
weights alone are 16-bit, to float16's own rounding of the images and logits where all of it is. What is left out of
quantization stays in 16 bits.
"""
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import models
from real_data import Data

IMAGES = 64
CALIBRATION = 32


def rounded(array, kind):
    if kind == TensorProto.FLOAT16:
        return array.astype(np.float16).astype(np.float32)
    return (array.view(np.uint32) & 0xFFFF0000).view(np.float32)


def stored(name, array, kind):
    if kind == TensorProto.FLOAT16:
        return numpy_helper.from_array(array.astype(np.float16), name)
    bits = (array.view(np.uint32) >> 16).astype(np.uint16)
    return helper.make_tensor(name, kind, array.shape, bits.tobytes(), raw=True)


def variants(model, kind, throughout):
    """The model with numbers that `kind` holds: as float32, and in 16 bits."""
    plain, half = onnx.ModelProto(), onnx.ModelProto()
    plain.CopyFrom(model)
    casts = []
    for constant in plain.graph.initializer:
        array = numpy_helper.to_array(constant)
        if array.dtype == np.float32 and (throughout or array.ndim > 1):
            constant.CopyFrom(numpy_helper.from_array(rounded(array, kind), constant.name))
    half.CopyFrom(plain)
    for constant in half.graph.initializer:
        array = numpy_helper.to_array(constant)
        if array.dtype != np.float32 or not (throughout or array.ndim > 1):
            continue
        name = constant.name if throughout else constant.name + "_16"
        if not throughout:
            casts.append(helper.make_node("Cast", [name], [constant.name], to=TensorProto.FLOAT))
        constant.CopyFrom(stored(name, array, kind))
    nodes = casts + list(half.graph.node)
    del half.graph.node[:]
    half.graph.node.extend(nodes)
    if throughout:
        for value in [*half.graph.input, *half.graph.output, *half.graph.value_info]:
            if value.type.tensor_type.elem_type == TensorProto.FLOAT:
                value.type.tensor_type.elem_type = kind
    return plain, half


def main():
    kaon, *folders = sys.argv[1:]
    path = next((p for p in models.find_models(folders) if "resnet20" in p), None)
    if path is None:
        print("SKIP resnet20 is not in the folders of models")
        return 0
    data = Data(os.path.join(os.path.dirname(os.path.dirname(path)), "data"))
    images = data.images("resnet20", 0, IMAGES)
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        calibration = os.path.join(scratch, "calibration.npz")
        np.savez(calibration, input=data.images("resnet20", IMAGES, CALIBRATION).astype(np.float32))
        for kind, throughout in ((TensorProto.FLOAT16, False), (TensorProto.BFLOAT16, False), (TensorProto.FLOAT16, True)):
            logits = []
            for name, model in zip(("plain", "half"), variants(onnx.load(path), kind, throughout)):
                file, out = os.path.join(scratch, name + ".onnx"), os.path.join(scratch, name + "_q.onnx")
                onnx.save(model, file)
                subprocess.run([kaon, "quantize", file, "--scheme", "w8a8c", "--calib", calibration,
                                "--exclude", "layer3*", "-o", out, "-q", "--force"], check=True)
                onnx.checker.check_model(out, full_check=True)
                running = models.session(out)
                kinds = models.TYPES[running.get_inputs()[0].type]
                logits.append(running.run(None, {running.get_inputs()[0].name: images.astype(kinds)})[0])
            left = [c for c in onnx.load(out).graph.initializer if c.data_type == kind and len(c.dims) == 4]
            a, b = (x.astype(np.float64) for x in logits)
            db = np.inf if np.array_equal(a, b) else 10 * np.log10(np.square(a).sum() / np.square(a - b).sum())
            fine = (db >= 30 if throughout else db == np.inf) and len(left) == 6
            wrong += not fine
            print(f"{'ok' if fine else 'WRONG'}  {TensorProto.DataType.Name(kind)}{' throughout' if throughout else ''}: "
                  f"{db:.1f} dB from the float32 file, {len(left)} weights in 16 bits")
    print(f"{wrong} wrong")
    return wrong


sys.exit(main())
