"""real_models.py KAON FOLDER... [--full]: Kaon runs real models as ONNX Runtime does, on real inputs where there are some.

Each output must be as near to ONNX Runtime without optimisations as ONNX Runtime with optimisations is, and 3 dB are
allowed; 100 dB is always enough. Top-1 may differ in one image of 500: of 1000, or of ImageNet's 200 without --full."""
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnxruntime as ort
from models import find_models, session, worst_sqnr
from real_data import Data

ALLOWED_DB = 3.0
ENOUGH_DB = 100.0
FAILURES = []


def check(holds, what):
    if not holds:
        FAILURES.append(what)
    return "" if holds else "  FAILED"


def run_kaon(kaon, model, feeds, names, scratch):
    source, target = os.path.join(scratch, "in.npz"), os.path.join(scratch, "out.npz")
    np.savez(source, **feeds)
    done = subprocess.run([kaon, "run", model, "--input", source, "-o", target, "-q"], capture_output=True, text=True,
                          timeout=120)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or f"exit {done.returncode}")
    with np.load(target) as arrays:
        return [arrays[name] for name in names]


def optimised(path):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def compare_outputs(kaon, path, data, scratch):
    plain = session(path)
    feeds, what = data.feeds(path, plain)
    expected = plain.run(None, feeds)
    yardstick = worst_sqnr(expected, optimised(path).run(None, feeds))
    try:
        got = run_kaon(kaon, path, feeds, [value.name for value in plain.get_outputs()], scratch)
    except RuntimeError as error:
        print(f"{os.path.basename(path)}: {error}{check(False, path)}")
        return
    sqnr = worst_sqnr(expected, got)
    bad = check(sqnr >= min(yardstick - ALLOWED_DB, ENOUGH_DB), path)
    print(f"{os.path.basename(path)} on {what}: {sqnr:.1f} dB; ONNX Runtime's optimisations {yardstick:.1f} dB{bad}")


def compare_top1(kaon, path, data, scratch, full):
    stem = os.path.splitext(os.path.basename(path))[0]
    running = optimised(path)
    name, output = running.get_inputs()[0].name, running.get_outputs()[0].name
    batch = 100 if "imagenet" in stem else 500
    images = 200 if "imagenet" in stem and not full else 1000
    ours, theirs = [], []
    for first in range(0, images, batch):
        feeds = {name: data.images(stem, first, batch).astype(np.float32)}
        theirs.append(np.concatenate([running.run(None, {name: feeds[name][i:i + 8]})[0] for i in range(0, batch, 8)]))
        ours.append(run_kaon(kaon, path, feeds, [output], scratch)[0])
    ours, theirs = (np.concatenate(v).argmax(1) for v in (ours, theirs))
    assert len(ours) == len(theirs) == images
    different = int((ours != theirs).sum())
    bad = check(different <= images // 500, path + " top-1")
    print(f"{stem}: top-1 differs on {different} of {images} images{bad}")


def main():
    full = "--full" in sys.argv
    kaon, shared, *more = [word for word in sys.argv[1:] if word != "--full"]
    more = [os.environ["KAON_MORE_MODELS"]] if "KAON_MORE_MODELS" in os.environ else more
    if not os.path.isdir(shared):
        print(f"skipped: no real models at {shared}")
        return
    for folder in more:
        if not find_models([folder]):
            print(f"skipped: no further models at {folder}")
    data = Data(os.path.join(shared, "..", "data"))
    with tempfile.TemporaryDirectory() as scratch:
        for path in find_models([shared, *more]):
            compare_outputs(kaon, path, data, scratch)
            if data.images(os.path.splitext(os.path.basename(path))[0], 0, 1) is not None:
                compare_top1(kaon, path, data, scratch, full)
    for failure in FAILURES:
        print("failed:", failure)
    sys.exit(1 if FAILURES else 0)


if __name__ == "__main__":
    main()
