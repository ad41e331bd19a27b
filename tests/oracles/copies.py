"""copies.py COPY_FILE FOLDER...: a file read and written again holds the same for ONNX, ONNX Runtime and NumPy.

Real models give bit-equal outputs, inline and with external data; tensors of every ONNX type keep their bits; arrays of
every NumPy type and layout keep their values, in .npy, .npz and compressed .npz."""
import os
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy as np
import onnx
from models import find_models, make_inputs, session, worst_difference
from onnx import TensorProto, helper, numpy_helper

FAILURES = []


def check(holds, what):
    if not holds:
        print("failed:", what)
        FAILURES.append(what)


def copy(tool, source, target, *words):
    done = subprocess.run([tool, source, target, *words], capture_output=True, text=True, timeout=120)
    check(done.returncode == 0, f"copy {source}: {done.stderr.strip()}")
    return done.returncode == 0


def real_models(tool, folders, scratch):
    for path in find_models(folders):
        before = session(path)
        feeds = make_inputs(path, before)
        expected = before.run(None, feeds)
        for words in [[], ["1000"]]:
            out = os.path.join(scratch, "model.onnx")
            if not copy(tool, path, out, *words):
                continue
            onnx.checker.check_model(out)
            gap = worst_difference(expected, session(out).run(None, feeds))
            check(gap == 0, f"{path} {words}: outputs differ by {gap:.3g}")
            print(f"{os.path.basename(path)} {'with external data' if words else 'inline'}: {'equal' if gap == 0 else gap}")


def tensors_of_every_type():
    """(name, tensor) with values of each type, in typed fields and in raw_data."""
    for number in sorted(TensorProto.DataType.values()):
        if number in (TensorProto.UNDEFINED, TensorProto.STRING) or number > TensorProto.INT2:
            continue
        name = TensorProto.DataType.Name(number)
        values = np.array([[0, 1, 1], [1, 0, 1]]).astype(helper.tensor_dtype_to_np_dtype(number))
        yield name + " typed", helper.make_tensor("w", number, [2, 3], values.flatten().tolist())
        yield name + " raw", numpy_helper.from_array(values, "w")
    yield "STRING", numpy_helper.from_array(np.array(["a", "", "é"], dtype=object), "w")
    yield "odd int4", numpy_helper.from_array(np.arange(-8, 7).astype(ml_dtypes.int4), "w")
    yield "odd uint2", numpy_helper.from_array((np.arange(7) % 4).astype(ml_dtypes.uint2), "w")


def every_tensor_type(tool, scratch):
    source, target = os.path.join(scratch, "in.onnx"), os.path.join(scratch, "out.onnx")
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    count = 0
    for name, tensor in tensors_of_every_type():
        constant = helper.make_node("Constant", [], ["c"], value=tensor)
        graph = helper.make_graph([constant], "g", [value], [value], [tensor])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13), source)
        if not copy(tool, source, target):
            continue
        out = onnx.load(target).graph
        expected = numpy_helper.to_array(tensor)
        for got in (out.initializer[0], out.node[0].attribute[0].t):
            values = numpy_helper.to_array(got)
            same = np.array_equal(values, expected) or values.tobytes() == expected.tobytes()  # NaN is not itself
            check(got.data_type == tensor.data_type and values.dtype == expected.dtype and same, name)
        count += 1
    print(f"{count} tensors, of every type")


def numpy_files(tool, scratch):
    arrays = {}
    for code in ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]:
        for order in "<>":
            for shape in [(), (5,), (2, 3, 4), (0, 3)]:
                for layout in "CF":
                    values = (np.arange(np.prod(shape, dtype=int)) % 2 if code == "?" else
                              np.arange(np.prod(shape, dtype=int)) * 3 + 1).reshape(shape)
                    dtype = np.dtype(code).newbyteorder(order)
                    arrays[f"{code} {order} {shape} {layout}"] = np.array(values, dtype=dtype, order=layout)
    for name, array in arrays.items():
        source, target = os.path.join(scratch, "in.npy"), os.path.join(scratch, "out.npy")
        np.save(source, array)
        if copy(tool, source, target):
            got = np.load(target)
            check(got.dtype == array.dtype.newbyteorder("<") and np.array_equal(got, array), f"npy {name}")
    for save in (np.savez, np.savez_compressed):
        for words in [[], ["deflate"]]:
            source, target = os.path.join(scratch, "in.npz"), os.path.join(scratch, "out.npz")
            save(source, **arrays)
            if copy(tool, source, target, *words):
                with np.load(target) as got:
                    check(got.files == list(arrays), "npz: names")
                    check(all(np.array_equal(got[name], arrays[name]) for name in arrays), f"npz {words}")
    print(f"{len(arrays)} arrays as .npy and .npz")


def main():
    tool, folders = sys.argv[1], sys.argv[2:]
    with tempfile.TemporaryDirectory() as scratch:
        every_tensor_type(tool, scratch)
        numpy_files(tool, scratch)
        real_models(tool, folders, scratch)
    sys.exit(1 if FAILURES else 0)


if __name__ == "__main__":
    main()
