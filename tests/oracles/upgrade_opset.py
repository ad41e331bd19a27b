"""upgrade_opset.py UPGRADE_ONNX FOLDER...: models upgraded to opset 21 give the same outputs in ONNX Runtime.

Real models must agree bit for bit, but for 1e-6 where they average-pool: ONNX Runtime has another kernel for that since
version 19. Hand-made models cover the rules one by one, those older than ONNX Runtime's reach against NumPy to 1e-6. The
ONNX project's own tests, where libonnx-testdata is installed, must give exactly what they gave before the upgrade, or
their data to 1e-3 where ONNX Runtime does not run the model before."""
import glob
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnx.defs
import onnx.numpy_helper
from upgrade_cases import check_cases
from models import find_models, make_inputs, rewrite, session, worst_difference

TARGET = 21
TEST_DATA = "/usr/share/libonnx-testdata/data"


def opset_of(path):
    model = onnx.load(path, load_external_data=False)
    return max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)


def least_gap(path):
    """What ONNX Runtime itself changes between the versions."""
    model = onnx.load(path, load_external_data=False)
    pools = any(node.op_type == "AveragePool" for node in model.graph.node)
    return 1e-6 if pools and opset_of(path) < 19 else 0.0


def check_real(tool, path, out):
    changes, error = rewrite(tool, path, out, [str(TARGET)])
    if error:
        return error, None
    onnx.checker.check_model(out)
    before = session(path)
    feeds = make_inputs(path, before)
    gap = worst_difference(before.run(None, feeds), session(out).run(None, feeds))
    return (f"outputs differ by {gap:.3g}" if gap > least_gap(path) else None), changes


def read_tensors(folder, kind):
    tensors = []
    for i in range(len(glob.glob(os.path.join(folder, f"{kind}_*.pb")))):
        proto = onnx.TensorProto()
        with open(os.path.join(folder, f"{kind}_{i}.pb"), "rb") as file:
            proto.ParseFromString(file.read())
        tensors.append(onnx.numpy_helper.to_array(proto))
    return tensors


def check_test(tool, path, out):
    """None where it holds, a message where not, or "skip: why"."""
    changes, error = rewrite(tool, path, out, [str(TARGET)])
    if error:
        return f"skip: {error}" if error.startswith("unsupported") else error
    if changes == 0:
        return "same"
    try:
        after = session(out)
    except Exception as problem:  # noqa: BLE001
        try:
            session(path)
        except Exception:  # noqa: BLE001
            return "skip: ONNX Runtime runs neither"
        return f"ONNX Runtime no longer loads it: {problem}"
    for folder in sorted(glob.glob(os.path.join(os.path.dirname(path), "test_data_set_*"))):
        try:
            feeds = {v.name: t for v, t in zip(after.get_inputs(), read_tensors(folder, "input"))}
            expected = read_tensors(folder, "output")
        except Exception as problem:  # noqa: BLE001
            return f"skip: data that is no tensor ({type(problem).__name__})"
        try:
            before = session(path).run(None, feeds)
        except Exception:  # noqa: BLE001
            before = None
        try:
            got = after.run(None, feeds)
        except Exception as problem:  # noqa: BLE001
            if before is None:
                return "skip: ONNX Runtime runs neither"
            return f"ONNX Runtime no longer runs it: {problem}"
        gap = worst_difference(before if before is not None else expected, got)
        if gap > (0 if before is not None else 1e-3):
            return f"outputs differ by {gap:.3g}" + (" from the data" if before is None else "")
    return None


# Changed on paper alone: a default written down that held before, a misspelt one, outputs renamed.
HARMLESS = {("Clip", 6), ("GRU", 3), ("LpPool", 11), ("Constant", 11)}


def incompatible_changes():
    """(op, version) where the schema lost or changed an attribute, gained a required input, or was retired."""
    history = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and schema.since_version <= TARGET:
            history.setdefault(schema.name, []).append(schema)
    single = onnx.defs.OpSchema.FormalParameterOption.Single
    for name, schemas in history.items():
        schemas.sort(key=lambda schema: schema.since_version)
        for old, new in zip(schemas, schemas[1:]):
            changed = new.deprecated
            needed, needed_before = ([i.name for i in s.inputs if i.option == single] for s in (new, old))
            for key, attribute in old.attributes.items():
                other = new.attributes.get(key)
                changed |= other is None or other.type != attribute.type
                changed |= other is not None and str(other.default_value) != str(attribute.default_value)
                changed |= other is not None and other.required and not attribute.required
            changed |= len(needed) > len(needed_before) or len(new.inputs) < len(old.inputs)
            changed |= len(new.outputs) < len(old.outputs)
            if changed:
                yield name, new.since_version


def main():
    tool, folders = sys.argv[1], sys.argv[2:]
    failures = 0
    with tempfile.TemporaryDirectory() as scratch:
        out = os.path.join(scratch, "out.onnx")
        paths = find_models(folders)
        for path in paths:
            opset = opset_of(path)
            problem, changes = check_real(tool, path, out)
            print(f"{os.path.basename(path)}: opset {opset}, {changes} nodes rewritten: {problem or 'equal'}")
            failures += problem is not None
        for name, problem in check_cases(tool, scratch):
            print(f"case {name}: {problem or 'equal'}")
            failures += problem is not None
        known = {tuple(line.split()) for line in
                 subprocess.run([tool, "--changes"], capture_output=True, text=True, check=True).stdout.splitlines()}
        for op, version in sorted(set(incompatible_changes()) - HARMLESS):
            if (op, str(version)) not in known:
                print(f"{op} changed in version {version}, and no rule says so")
                failures += 1
        counts = {}
        for path in sorted(glob.glob(os.path.join(TEST_DATA, "*", "*", "model.onnx"))):
            name = os.path.basename(os.path.dirname(path))
            result = check_test(tool, path, out)
            kind = "equal" if result is None else "nothing to do" if result == "same" else \
                "skipped" if result.startswith("skip") else "FAILED"
            counts[kind] = counts.get(kind, 0) + 1
            if kind in ("skipped", "FAILED"):
                print(f"{name}: {result}")
            failures += kind == "FAILED"
        print("ONNX's own tests:", counts or f"none at {TEST_DATA}")
    if not paths:
        print("no models in", folders)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
