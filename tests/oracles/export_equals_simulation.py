"""export_equals_simulation.py SIMULATE_DUMP [--full] FOLDER...: an exported file computes what the simulation says.

For every model and scheme, sample by sample:
 - weights: what ONNX Runtime dequantizes is bit for bit what the simulation multiplies with;
 - layer by layer on identical inputs: each activation's quantizer is cut off from its readers, which get the
   simulation's value instead. The codes must be equal, except where the value before rounding lies on a tie: within
   TIE · (largest value of the tensor) of the middle between two codes, which is what float32 sums in another order
   differ by. A dynamic quantizer gets the simulation's value from before it and must give exactly the same; what the
   layers compute between may differ by SUM · (largest value). Behind Erf, Log and their like both are FUNCTION;
 - end to end, optimisation off: SQNR against the simulation is at least what ONNX Runtime reaches against itself
   minus 3 dB, where 100 dB counts as equal. Against itself means: optimisation off, and on with
   session.disable_quant_qdq=1 (w8a8d with float products, as integer ones leave nothing to reorder), or with weights
   that differ in their last bits: where few codes flip, that one way flipped none is luck;
 - optimised, the file loads, has the fused operators and computes about the same (10 dB less).
Without --full a few schemes on every model and every scheme on two of them, with algorithms too."""
import json
import os
import re
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime as ort
from export_data import prepare
from models import find_models
from onnx import helper, numpy_helper

SCHEMES = ["w8", "w8c", "w4g32", "w4g128", "w4g32s", "w4g128s", "w4c", "w8a8", "w8a8c", "w8a8d", "w8a8dc", "a16w8", "fp8", "fp8d",
           "fp16", "bf16"]
FEW = ["w8a8c", "w4g32"]  # for the models that are not in ALL, where there are dynamic ones of each kind of layer
ALL = ["resnet20_cifar10_fp32.onnx", "model.onnx"]
# Each algorithm and each form of it that leaves another graph, ranges or constants behind.
ALGORITHMS = {"resnet20_cifar10_fp32.onnx": [
                  "w8a8+cle:activations=1+range_search:activations=1+bias_correction:sequential=1",
                  "w4c+range_search+adaround", "w4c+seq_mse+gptq:sequential=1", "fp8+gptq+bias_correction"],
              "mobilenetv2_1.0_224_imagenet_fp32.onnx": ["fp8+cle:absorb=1+adaround+bias_correction"],
              "model.onnx": ["w8a8+smooth_quant+range_search", "w4g32+awq+gptq"],
              "etinynet1.0_imagenet_fp32.onnx": ["w8a8c+bn_reestimation"]}
# Of a product's weights these differ from the others in numbers only.
SAME_IN_PRODUCTS = {"w8", "w4g128", "w4g128s", "w8a8dc", "fp16"}
STATIC = {"w8a8", "w8a8c", "a16w8", "fp8"}
TIE = 2e-6  # the root of 1000 products times 2^-24; up to 1.3e-6 was seen, behind 960 products
SUM = 1e-5
# These are approximated differently everywhere, or divide by what nearly cancels: behind them both may be so large.
FUNCTIONS = {"Erf", "Exp", "Log", "Pow", "Sqrt", "Tanh", "Sigmoid", "Softmax", "ReduceMean", "LayerNormalization"}
FUNCTION = 1e-4
NUDGE = 4 * 2.0 ** -23
EQUAL_DB = 100.0
SMALL = 3.6e6  # bytes of a model that runs in a few milliseconds, of which more samples are compared end to end


def run_session(model, optimised=False, settings=None, save=None):
    options = ort.SessionOptions()
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    for key, value in (settings or {}).items():
        options.add_session_config_entry(key, value)
    if save:
        options.optimized_model_filepath = save
    data = model if isinstance(model, str) else model.SerializeToString()
    return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def signed_weights_to_unsigned(model):
    """The same integers with zero point 128: without VNNI, ONNX Runtime's uint8 x int8 products saturate."""
    constants = {i.name: i for i in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type not in ("MatMulInteger", "ConvInteger"):
            continue
        weight = constants[node.input[1]]
        if weight.data_type == onnx.TensorProto.INT8:
            values = numpy_helper.to_array(weight).astype(np.int16) + 128
            weight.CopyFrom(numpy_helper.from_array(values.astype(np.uint8), weight.name))
        zero = node.input[1] + "_128"
        if zero not in constants:
            constants[zero] = numpy_helper.from_array(np.array(128, np.uint8), zero)
            model.graph.initializer.append(constants[zero])
        node.input.append(zero)


def has_vnni():
    try:
        with open("/proc/cpuinfo") as file:
            return "vnni" in file.read()
    except OSError:
        return False


def quantized_from(node, producers):
    """The value that `node` gives quantized, with static parameters; None where it does no such thing."""
    before = producers.get(node.input[0]) if node.input else None
    if node.op_type == "DequantizeLinear" and before is not None and before.op_type == "QuantizeLinear":
        return before.input[0]
    # An 8-bit float: Div, Cast, Cast, Mul with a constant scale.
    chain = [node]
    while len(chain) < 4 and chain[-1].input and chain[-1].input[0] in producers:
        chain.append(producers[chain[-1].input[0]])
    if [n.op_type for n in chain] != ["Mul", "Cast", "Cast", "Div"] or chain[0].input[1] != chain[3].input[1]:
        return None
    return chain[3].input[0] if chain[3].input[1] not in producers else None


def float_twin(model):
    """The same numbers with float products of dequantized values in place of integer ones."""
    twin = onnx.ModelProto()
    twin.CopyFrom(model)
    scales = {n.output[0]: n.output[1] for n in twin.graph.node if n.op_type == "DynamicQuantizeLinear"}
    turned = {n.output[0]: n.input[0] for n in twin.graph.node if n.op_type == "Transpose" and n.input[0] in scales}
    nodes = []
    for node in twin.graph.node:
        if node.op_type in ("MatMulInteger", "ConvInteger"):
            x, w, x_zero, *w_zero = node.input
            x_scale = scales[turned.get(x, x)]
            nodes.append(helper.make_node("DequantizeLinear", [x, x_scale, x_zero], [node.output[0] + "_x"]))
            nodes.append(helper.make_node("DequantizeLinear", [w, "one", *w_zero], [node.output[0] + "_w"]))
            node.op_type = node.op_type[:-len("Integer")]
            del node.input[:]
            node.input.extend([node.output[0] + "_x", node.output[0] + "_w"])
        elif node.op_type == "Mul" and node.input[0] in scales.values():
            node.op_type = "Identity"
            del node.input[0]
        nodes.append(node)
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del twin.graph.node[:]
    twin.graph.node.extend(kept)
    twin.graph.initializer.append(numpy_helper.from_array(np.array(1, np.float32), "one"))
    return twin


def behind_functions(graph):
    """The values that depend on one of FUNCTIONS within a cut graph."""
    found = set()
    for node in graph.node:
        if node.op_type in FUNCTIONS or found.intersection(node.input):
            found.update(node.output)
    return found


def nudged(model, by):
    """The scales of weights times 1 ± by."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    constants = {i.name: i for i in other.graph.initializer}
    dynamic = {n.output[1] for n in other.graph.node if n.op_type == "DynamicQuantizeLinear"}
    random = np.random.default_rng(5)
    for node in other.graph.node:
        of_weight = node.op_type == "DequantizeLinear" and node.input[0] in constants
        if not of_weight and not (node.op_type == "Mul" and node.input[0] in dynamic):
            continue
        scale = numpy_helper.to_array(constants[node.input[1]])
        signs = random.choice(np.array([-1, 1], np.float32), scale.shape)
        name = node.output[0] + "#nudged"
        other.graph.initializer.append(numpy_helper.from_array(
            np.asarray(scale * (1 + np.float32(by) * signs), np.float32), name))
        node.input[1] = name
    return other


class Comparison:
    """One exported file and the simulation's values."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "model.onnx")
        self.model = onnx.load(self.path)
        if not has_vnni():
            signed_weights_to_unsigned(self.model)
        with open(os.path.join(folder, "plan.json")) as file:
            self.plan = json.load(file)
        self.values = dict(np.load(os.path.join(folder, "values.npz")))
        initializers = {i.name for i in self.model.graph.initializer}
        self.inputs = [i.name for i in self.model.graph.input if i.name not in initializers]
        self.outputs = [o.name for o in self.model.graph.output]
        self.problems = []
        self.codes = self.differing = 0
        self.tie = self.sum = 0.0

    def at(self, sample, name):
        return self.values[f"{sample}:{name}"]

    def feeds(self, sample):
        return {name: self.at(sample, name) for name in self.inputs}

    def check_weights(self):
        """Dequantized constants, or their transposes, against the simulation's: each must be one of them."""
        constants = {i.name for i in self.model.graph.initializer}
        nodes = [n for n in self.model.graph.node
                 if n.op_type in ("DequantizeLinear", "Cast") and all(i in constants for i in n.input)]
        if not nodes:
            return 0
        used = {i for node in nodes for i in node.input}
        names = [node.output[0] for node in nodes]
        graph = helper.make_graph(nodes, "weights", [], [onnx.ValueInfoProto(name=name) for name in names],
                                  [i for i in self.model.graph.initializer if i.name in used])
        model = helper.make_model(graph, opset_imports=self.model.opset_import, ir_version=self.model.ir_version)
        simulated = {value.tobytes() for name, value in self.values.items() if name.startswith("w:")}
        for name, got in zip(names, run_session(model).run(None, {})):
            turned = np.ascontiguousarray(got.T) if got.ndim == 2 else got
            if got.tobytes() not in simulated and turned.tobytes() not in simulated:
                self.problems.append(f"weight {name} is not what the simulation has")
        return len(names)

    def cut(self):
        """Cuts the graph at its quantizers. Gives the model, {fed value: simulated name}, and what to compare."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        graph = model.graph
        producers = {o: n for n in graph.node for o in n.output}
        fed, rounded, exact, sums = {}, [], [], []
        simulated = {}  # name in the file -> name in the simulation
        for row in self.plan["activations"]:
            if row["dynamic"]:
                self.cut_dynamic(row, graph, producers, fed, exact, sums)
                continue
            for value in [row["tensor"], *row["moved"]]:
                partial = value == row["tensor"] and row["simulated"] != value
                simulated.setdefault((value, partial), []).append(row["simulated"] if partial else value)
        for node in list(graph.node):
            source = quantized_from(node, producers)
            if source is None:
                continue
            whole = simulated.pop((node.output[0], False), None)
            name = whole or simulated.pop((source, True), None)
            if name is None:
                self.problems.append(f"the simulation has no quantizer that makes {node.output[0]}")
                continue
            fed[node.output[0]] = name[0]
            rounded.append((node.output[0], source))
        for value, _ in simulated:
            self.problems.append(f"the file has no quantizer on {value}")
        for node in graph.node:
            for k, output in enumerate(node.output):
                if output in fed:
                    node.output[k] = output + "#own"
        # A value before a quantizer may be a fed one itself: then the readers' copy is meant.
        made = {o for n in graph.node for o in n.output}
        wanted = [v + "#own" for v, _ in rounded] + [s for _, s in rounded if s in made]
        wanted += [v + "#own" for v in sums if v + "#own" in made] + [v for names, _ in exact for v in names]
        del graph.output[:]
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in dict.fromkeys(wanted))
        graph.input.extend(helper.make_tensor_value_info(v, onnx.TensorProto.FLOAT, None)
                           for v in fed if v not in self.inputs)
        del graph.value_info[:]
        return model, fed, rounded, exact, sums

    def cut_dynamic(self, row, graph, producers, fed, exact, sums):
        """The quantizer reads the simulation's float value; what it makes of it must be exactly the simulation's."""
        tensor = row["tensor"]
        if tensor not in self.inputs:
            fed[tensor] = tensor
            sums.append(tensor)
        for node in graph.node:
            if node.op_type == "DynamicQuantizeLinear" and node.input[0] == tensor:
                exact.append((list(node.output), row["simulated"]))
                return
        name = next((o for o in producers if re.match(re.escape(tensor) + r"_dequantized(_\d+)?$", o)), None)
        if name is None:
            self.problems.append(f"the file has no dynamic quantizer on {tensor}")
        else:
            exact.append(([name], row["simulated"]))

    def check_layers(self):
        if not self.plan["activations"]:
            return
        model, fed, rounded, exact, sums = self.cut()
        running = run_session(model)
        loose = behind_functions(model.graph)
        names = [o.name for o in running.get_outputs()]
        for sample in range(self.plan["whole"]):
            feeds = self.feeds(sample)
            feeds.update({v: self.at(sample, name) for v, name in fed.items()})
            got = dict(zip(names, running.run(None, feeds)))
            for value, source in rounded:
                raw = got[source] if source in got else feeds[source]
                self.compare_codes(value, raw, got[value + "#own"], feeds[value], FUNCTION if source in loose else TIE)
            for value in sums:
                if value + "#own" in got:
                    largest = np.abs(feeds[value]).max()
                    gap = float(np.abs(got[value + "#own"] - feeds[value]).max() / max(largest, 1e-30))
                    self.sum = max(self.sum, gap)
                    if not gap <= (FUNCTION if value + "#own" in loose else SUM):
                        self.problems.append(f"{value} differs by {gap:.3g} of its largest value")
            for made, name in exact:
                value = got[made[0]]
                if len(made) == 3:  # codes, scale, zero point
                    value = (value.astype(np.float32) - np.float32(got[made[2]])) * got[made[1]]
                self.codes += value.size
                if not np.array_equal(value, self.at(sample, name)):
                    self.problems.append(f"dynamic {name}: {np.sum(value != self.at(sample, name))} values differ")

    def compare_codes(self, value, raw, own, simulated, tolerance):
        self.codes += own.size
        if own.shape != simulated.shape:
            self.problems.append(f"{value} is {own.shape}, not {simulated.shape}")
            return
        differ = own != simulated
        count = int(differ.sum())
        if count == 0:
            return
        self.differing += count
        middle = (own[differ].astype(np.float64) + simulated[differ]) / 2
        distance = float((np.abs(raw[differ] - middle) / np.abs(raw).max()).max())
        self.tie = max(self.tie, distance)
        if not distance <= tolerance:
            self.problems.append(f"{value}: {count} codes differ, up to {distance:.3g} of the largest value off a tie")

    def shares_weights(self):
        constants = {i.name for i in self.model.graph.initializer}
        weights = [n.output[0] for n in self.model.graph.node
                   if n.op_type == "DequantizeLinear" and n.input[0] in constants]
        read = [i for n in self.model.graph.node for i in n.input]
        return any(read.count(name) > 1 for name in weights)

    def check_end_to_end(self, scheme):
        """SQNR in dB against ONNX Runtime without optimisation: the simulation's, and its own in three other ways."""
        exact = {"session.qdq_matmulnbits_accuracy_level": "1"}
        if not self.shares_weights():  # else ONNX Runtime does not load it: it makes each weight a twin of one name
            exact["session.x64quantprecision"] = "1"
        # As much as sums differ by that are added up in another order, or as functions were seen to differ.
        by = NUDGE if max(self.tie, self.sum / 10) <= TIE else max(self.tie, self.sum)
        other = float_twin(self.model) if scheme in ("w8a8d", "w8a8dc") else self.model
        off = run_session(self.model)
        ways = {"itself": run_session(other, True, {**exact, "session.disable_quant_qdq": "1"}),
                "nudged": run_session(nudged(self.model, by)), "optimised": run_session(self.model, True, exact)}
        signal, noise = 0.0, dict.fromkeys(["simulation", *ways], 0.0)
        for sample in range(self.plan["samples"]):
            feeds = self.feeds(sample)
            got = {way: running.run(self.outputs, feeds) for way, running in ways.items()}
            got["simulation"] = [self.at(sample, name) for name in self.outputs]
            for k, expected in enumerate(off.run(self.outputs, feeds)):
                if expected.dtype != np.float32:
                    continue
                expected = expected.astype(np.float64)
                signal += np.square(expected).sum()
                for way in noise:
                    noise[way] += np.square(got[way][k] - expected).sum()
        db = {way: 10 * np.log10(signal / n) if n > 0 else np.inf for way, n in noise.items()}
        if not db["simulation"] >= min(db["itself"], db["nudged"], EQUAL_DB) - 3:
            self.problems.append("end to end the simulation is further off than ONNX Runtime from itself")
        if not db["optimised"] >= min(db["itself"], db["nudged"], EQUAL_DB) - 10:
            self.problems.append("optimised, the file computes something else")
        return db

    def check_fused(self, scheme, scratch):
        saved = os.path.join(scratch, "optimised.onnx")
        run_session(self.path, True, save=saved)
        count = {}
        for node in onnx.load(saved).graph.node:
            count[node.op_type] = count.get(node.op_type, 0) + 1
        before = {}
        for node in self.model.graph.node:
            before[node.op_type] = before.get(node.op_type, 0) + 1
        floats = count.get("Conv", 0) + count.get("FusedConv", 0)
        if scheme in ("w8a8", "w8a8c"):
            if before.get("Conv") and (floats or not count.get("QLinearConv")):
                self.problems.append(f"optimised: {floats} float Conv, {count.get('QLinearConv', 0)} QLinearConv")
            if before.get("Gemm") and not count.get("QGemm"):
                self.problems.append("optimised: no QGemm")
        if scheme.startswith("w4g") and (before.get("MatMul") or before.get("Gemm")) and not count.get("MatMulNBits"):
            constant = {o for n in self.model.graph.node if n.op_type == "DequantizeLinear" for o in n.output}
            if any(n.op_type in ("MatMul", "Gemm") and constant & set(n.input) for n in self.model.graph.node):
                self.problems.append("optimised: no MatMulNBits")
        return {op: count[op] for op in ("QLinearConv", "QGemm", "QLinearMatMul", "MatMulIntegerToFloat",
                                         "DynamicQuantizeMatMul", "MatMulNBits", "Conv", "FusedConv") if op in count}


def main():
    words = sys.argv[1:]
    full = "--full" in words
    only = [w.split("=", 1)[1] for w in words if w.startswith("--scheme=")]
    tool, *folders = [w for w in words if not w.startswith("--")]
    failures = 0
    if not has_vnni():
        print("this CPU has no VNNI: int8 weights of integer products are compared as uint8 with zero point 128")
    for path in find_models(folders):
        name = os.path.basename(path)
        schemes = only or (SCHEMES if full or name in ALL and "MiniLM" not in path else FEW)
        if name == "model.onnx" and not (only or full):
            schemes = [s for s in schemes if s not in SAME_IN_PRODUCTS]
        if not only and "MiniLM" not in path:
            schemes = schemes + ALGORITHMS.get(name, [])
        data = os.path.join(os.path.dirname(os.path.dirname(path)), "data")
        if not os.path.isdir(data):
            data = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(path))), "data")
        start = time.time()
        with tempfile.TemporaryDirectory() as scratch:
            small = os.path.getsize(path) < SMALL
            files = prepare(path, data, scratch, 16, (64 if small else 16) if full else (16 if small else 8))
            if files is None:
                print(f"{name}: not compared: its inputs have no axis of samples")
                continue
            done = subprocess.run([tool, path, *files, "4" if full else "2", scratch, *schemes], capture_output=True,
                                  text=True, timeout=600)
            if done.returncode != 0:
                print(f"{name}: {done.stderr.strip()}")
                failures += not done.stderr.startswith("invalid input: this model has no layer")
                continue
            print(f"{name}: simulated in {time.time() - start:.1f} s")
            for scheme in schemes:
                start = time.time()
                one = Comparison(os.path.join(scratch, scheme))
                weights = one.check_weights()
                one.check_layers()
                db = one.check_end_to_end(scheme.split("+")[0])
                fused = one.check_fused(scheme.split("+")[0], scratch)
                print(f"  {scheme}: {weights} weights, {one.codes} codes, {one.differing} on ties (to {one.tie:.2g}), "
                      f"sums to {one.sum:.2g}, dB: {', '.join(f'{way} {n:.1f}' for way, n in db.items())}, "
                      f"{fused}, {time.time() - start:.1f} s")
                for problem in one.problems[:5]:
                    print("    failed:", problem)
                failures += bool(one.problems)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
