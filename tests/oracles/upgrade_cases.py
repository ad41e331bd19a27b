"""Small models, one for each rule of upgrade_opset."""
import os

import numpy as np
import onnx
from models import rewrite, session, worst_difference
from onnx import TensorProto, helper, numpy_helper

RANDOM = np.random.default_rng(7)
KINDS = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.float64): TensorProto.DOUBLE,
         np.dtype(np.float16): TensorProto.FLOAT16, np.dtype(np.int64): TensorProto.INT64,
         np.dtype(np.bool_): TensorProto.BOOL}


def floats(*shape, kind=np.float32):
    return RANDOM.standard_normal(shape).astype(kind)


def model(opset, nodes, inputs, constants=None, outputs=("y",), name="case"):
    """Nodes are (op, inputs, outputs, attributes); outputs have no type, as in files that say little."""
    graph = helper.make_graph(
        [helper.make_node(op, i.split(), o.split(), name=f"{op}_{n}", **a) for n, (op, i, o, a) in enumerate(nodes)],
        name,
        [helper.make_tensor_value_info(k, KINDS[v.dtype], v.shape) for k, v in inputs.items()],
        [onnx.ValueInfoProto(name=o) if isinstance(o, str) else o for o in outputs],
        [numpy_helper.from_array(v, k) for k, v in (constants or {}).items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=4)


def compared_with_ort():
    """(name, opset, nodes, inputs, constants, outputs): ONNX Runtime runs the model before and after."""
    x4 = {"x": floats(2, 6, 8, 8)}
    x3 = {"x": floats(2, 3, 4)}
    yield "clip", 6 + 1, [("Clip", "x", "y", dict(min=-0.5, max=0.25))], x4
    yield "clip_min", 10, [("Clip", "x", "y", dict(min=-0.5))], x3
    yield "pad_constant", 10, [("Pad", "x", "y", dict(pads=[0, 0, 1, 2, 0, 0, 3, 4], value=1.5))], x4
    yield "pad_reflect", 9, [("Pad", "x", "y", dict(pads=[0, 0, 1, 2, 0, 0, 3, 4], mode="reflect"))], x4
    yield "slice", 9, [("Slice", "x", "y", dict(starts=[1, -5], ends=[9999, -1], axes=[1, 3]))], x4
    yield "slice_all_axes", 9, [("Slice", "x", "y", dict(starts=[0, 1, 0], ends=[1, 3, 3]))], x3
    yield "split", 11, [("Split", "x", "y z", dict(axis=1, split=[2, 4]))], x4, {}, ["y", "z"]
    yield "split_equal", 13, [("Split", "x", "y z", dict(axis=1))], x4, {}, ["y", "z"]
    yield "squeeze", 11, [("Squeeze", "x", "y", dict(axes=[0, 2]))], {"x": floats(1, 3, 1, 4)}
    yield "squeeze_all", 11, [("Squeeze", "x", "y", {})], {"x": floats(1, 3, 1, 4)}
    yield "unsqueeze", 11, [("Unsqueeze", "x", "y", dict(axes=[0, -1]))], x3
    yield "topk", 9, [("TopK", "x", "y z", dict(k=2, axis=1))], x3, {}, ["y", "z"]
    yield "dropout", 9, [("Dropout", "x", "y", dict(ratio=0.3))], x3
    yield "dropout_mask_unread", 9, [("Dropout", "x", "y m", dict(ratio=0.3))], x3
    for reduce in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare"):
        positive = {"x": np.abs(floats(2, 3, 4)) + 0.1}
        yield f"reduce_{reduce}", 11, [(f"Reduce{reduce}", "x", "y", dict(axes=[0, 2], keepdims=0))], positive
        yield f"reduce_{reduce}_all", 11, [(f"Reduce{reduce}", "x", "y", {})], positive
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        for axis in (0, 1, 2, -1, -2, None):
            yield f"{op}_axis_{axis}", 11, [(op, "x", "y", {} if axis is None else dict(axis=axis))], x3
        yield f"{op}_matrix", 9, [(op, "x", "y", {})], {"x": floats(3, 5)}
    for mode in ("nearest", "linear"):
        yield f"upsample_7_{mode}", 7, [("Upsample", "x", "y", dict(scales=[1.0, 1.0, 2.0, 1.5], mode=mode))], x4
        scales = {"s": np.array([1, 1, 2, 1.5], np.float32)}
        yield f"upsample_9_{mode}", 9, [("Upsample", "x s", "y", dict(mode=mode))], x4, scales
        yield f"resize_10_{mode}", 10, [("Resize", "x s", "y", dict(mode=mode))], x4, scales
        smaller = {"s": np.array([1, 1, 0.6, 0.5], np.float32)}
        yield f"resize_10_{mode}_smaller", 10, [("Resize", "x s", "y", dict(mode=mode))], x4, smaller
        yield f"resize_10_{mode}_given", 10, [("Resize", "x s", "y", dict(mode=mode))], {**x4, "s": scales["s"]}
    sizes = {"e": np.zeros(0, np.float32), "n": np.array([2, 6, 5, 11], np.int64)}
    for nearest in ("floor", "round_prefer_floor"):
        yield f"resize_11_tf_{nearest}", 11, [("Resize", "x e e n", "y", dict(
            mode="nearest", coordinate_transformation_mode="tf_half_pixel_for_nn", nearest_mode=nearest))], x4, sizes
    yield "resize_11_sizes", 11, [("Resize", "x e e n", "y", dict(mode="linear"))], x4, sizes
    norm = {k: np.abs(floats(6)) + 0.5 for k in ("g", "b", "m", "v")}
    yield "batch_norm", 7, [("BatchNormalization", "x g b m v", "y", dict(epsilon=1e-3))], x4, norm
    yield "scatter", 9, [("Scatter", "x i u", "y", dict(axis=1))], {"x": floats(3, 3)}, {
        "i": np.array([[1, 0, 2], [0, 2, 1]], np.int64), "u": floats(2, 3)}
    yield "dft", 17, [("DFT", "x", "y", {})], {"x": floats(2, 8, 1)}
    yield "dft_axis", 17, [("DFT", "x", "y", dict(axis=2))], {"x": floats(2, 8, 4, 1)}
    grid = {"g": RANDOM.uniform(-1, 1, (2, 5, 4, 2)).astype(np.float32)}
    for mode in ("bilinear", "bicubic", "nearest"):
        yield f"grid_sample_{mode}", 16, [("GridSample", "x g", "y", dict(mode=mode))], x4, grid
    yield "grid_sample_default", 16, [("GridSample", "x g", "y", {})], x4, grid
    rois = {"r": np.array([[0, 0, 5, 6], [1, 2, 7, 7]], np.float32), "i": np.array([0, 1], np.int64)}
    yield "roi_align", 10, [("RoiAlign", "x r i", "y", dict(output_height=3, output_width=2))], x4, rois
    yield "group_norm", 18, [("GroupNormalization", "x g b", "y", dict(num_groups=2))], x4, {
        "g": floats(2), "b": floats(2)}
    yield "cast", 7, [("Cast", "x", "y", dict(to=TensorProto.INT64))], x3
    # A subgraph that reads a value from outside, with rules to apply on both sides.
    branch = [helper.make_graph([helper.make_node("Unsqueeze", ["a"], [o], axes=[0])] if o == "p" else
                                [helper.make_node("ReduceSum", ["a"], ["t"], axes=[0], keepdims=0),
                                 helper.make_node("Unsqueeze", ["t"], [o], axes=[0])],
                                f"branch_{o}", [], [helper.make_tensor_value_info(o, TensorProto.FLOAT, None)])
              for o in ("p", "q")]
    for flag in (True, False):
        yield f"if_{flag}", 11, [("Relu", "x", "a", {}),
                                 ("If", "c", "y", dict(then_branch=branch[0], else_branch=branch[1]))], {
            "x": floats(2, 3), "c": np.array(flag)}
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "v"], ["t"]), helper.make_node("Identity", ["t"], ["o"])], "body",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("s", "v")],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("t", "o")])
    for direction in (0, 1):
        scan = helper.make_node("Scan", ["", "h", "x"], ["y", "z"], body=body, num_scan_inputs=1,
                                directions=[direction])
        yield f"scan_{direction}", 8, [scan], {"h": floats(3, 2), "x": floats(3, 5, 2)}, {}, ["y", "z"]


def compared_with_numpy():
    """(name, opset, nodes, inputs, constants, expected): older than ONNX Runtime's kernels."""
    x = floats(2, 3, 4, 5)
    b = floats(3, 4)
    one = {"x": x}
    for op, function in (("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply), ("Div", np.divide)):
        expected = function(x, b.reshape(1, 3, 4, 1))
        yield f"{op}_axis", 6, [(op, "x b", "y", dict(broadcast=1, axis=1))], one, {"b": b}, expected
        yield f"{op}_axis_given", 6, [(op, "x b", "y", dict(broadcast=1, axis=1))], {"x": x, "b": b}, {}, expected
    yield "add_last", 6, [("Add", "x b", "y", dict(broadcast=1))], one, {"b": b[0, :1]}, x + b[0, :1]
    yield "add_behind_conv", 6, [("MaxPool", "x", "a", dict(kernel_shape=[1, 1])),
                                 ("Add", "a b", "y", dict(broadcast=1, axis=1))], one, {"b": b[:, 0]}, \
        x + b[:, :1, None]
    yield "greater_axis", 6, [("Greater", "x b", "y", dict(broadcast=1, axis=-3))], one, {"b": b}, \
        x > b[None, :, :, None]
    slope = np.array([0.1, 0.2, 0.3], np.float32)
    yield "prelu", 6, [("PRelu", "x s", "y", {})], one, {"s": slope}, np.where(x < 0, x * slope[:, None, None], x)
    yield "prelu_one", 6, [("PRelu", "x s", "y", {})], one, {"s": slope[:1]}, np.where(x < 0, x * slope[0], x)
    yield "relu", 1, [("Relu", "x", "y", dict(consumed_inputs=[0]))], one, {}, np.maximum(x, 0)
    yield "reshape", 1, [("Reshape", "x", "y", dict(shape=[0, -1]))], one, {}, x.reshape(2, -1)
    yield "cast", 1, [("Cast", "x", "y", dict(to="INT64"))], one, {}, x.astype(np.int64)
    yield "concat", 3, [("Concat", "x x", "y", {})], one, {}, np.concatenate([x, x], 1)
    yield "pad", 1, [("Pad", "x", "y", dict(paddings=[0, 0, 1, 0, 0, 0, 0, 2]))], one, {}, np.pad(
        x, [(0, 0), (0, 0), (1, 0), (0, 2)])
    yield "split", 1, [("Split", "x l", "y z", dict(axis=2))], one, {"l": np.array([1, 3], np.float32)}, x[:, :, :1]
    yield "upsample", 1, [("Upsample", "x", "y", dict(height_scale=2.0, width_scale=3.0, mode="nearest"))], one, {}, \
        x.repeat(2, 2).repeat(3, 3)
    yield "selu", 1, [("Selu", "x", "y", {})], one, {}, np.where(
        x > 0, np.float32(1.0507) * x, np.float32(1.0507) * (np.float32(1.6732) * np.exp(x) - np.float32(1.6732)))
    yield "lp_pool", 1, [("GlobalLpPool", "x", "y", dict(p=1.0))], one, {}, np.abs(x).sum((2, 3), keepdims=True)
    a, w, c = floats(2, 3), floats(3, 4), floats(4)
    yield "gemm", 6, [("Gemm", "a w c", "y", dict(broadcast=1))], {"a": a}, {"w": w, "c": c}, a @ w + c
    for kind in (np.float16, np.float64):
        z = floats(5, kind=kind)
        yield f"clip_{kind.__name__}", 10, [("Relu", "x", "a", {}), ("Clip", "a", "y", dict(max=0.3))], {"x": z}, {}, \
            np.clip(z, 0, kind(np.float32(0.3)))
    yield "batch_norm", 6, [("BatchNormalization", "x g b m v", "y", dict(is_test=1, epsilon=0.0))], one, {
        "g": slope, "b": slope, "m": slope, "v": np.ones(3, np.float32)}, (
        x - slope[:, None, None]) * slope[:, None, None] + slope[:, None, None]


def check_cases(tool, scratch):
    """(name, problem or None) of each."""
    source, target = os.path.join(scratch, "case.onnx"), os.path.join(scratch, "case_out.onnx")
    for name, opset, nodes, inputs, *rest in compared_with_ort():
        constants = rest[0] if rest else {}
        outputs = rest[1] if len(rest) > 1 else ["y"]
        if isinstance(nodes[0], onnx.NodeProto):
            case = model(opset, [], inputs, constants, outputs)
            case.graph.node.extend(nodes)
        else:
            case = model(opset, nodes, inputs, constants, outputs)
        onnx.save(case, source)
        changes, error = rewrite(tool, source, target, ["21"])
        if error or changes == 0 and name != "cast":
            yield name, error or "no rule was applied"
            continue
        gap = worst_difference(session(source).run(None, inputs), session(target).run(None, inputs))
        yield name, f"outputs differ by {gap:.3g}" if gap else None
    for name, opset, nodes, inputs, constants, expected in compared_with_numpy():
        onnx.save(model(opset, nodes, inputs, constants), source)
        changes, error = rewrite(tool, source, target, ["21"])
        if error:
            yield f"old {name}", error
            continue
        gap = worst_difference([np.asarray(expected)], session(target).run(["y"], inputs))
        yield f"old {name}", f"differs from NumPy by {gap:.3g}" if gap > 1e-6 else None
