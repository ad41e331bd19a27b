"""Do the quickstart's files give ONNX Runtime the accuracies that results.json states?

quickstart.py KAON FOLDERS…       trains briefly, and for mlp and mobilenet; the folders of models are not used
"""
import gzip
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

import models

DATA = os.environ.get("KAON_DATA", "/usr/share/datasets/fashion-mnist")
failures = []


def check(ok, line):
    print(("ok    " if ok else "WRONG ") + line, flush=True)
    if not ok:
        failures.append(line)


def idx(name, header):
    with gzip.open(f"{DATA}/{name}") as file:
        return np.frombuffer(file.read(), np.uint8)[header:]


def compare(kaon, model, folder, x, labels):
    words = [kaon, "quickstart", "-o", folder, "--model", model, "--epochs", "1", "--limit", "6000", "-q", "--json"]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    result = json.loads(done.stdout)
    with open(f"{folder}/results.json") as file:
        check(json.load(file) == result, f"{model}: results.json is what was printed")
    for row in [{"scheme": "float", **result["float"]}, *result["schemes"]]:
        if row["file"] is None:
            check(row["scheme"] == "mxfp4", f"{model} {row['scheme']}: no file, {row['bytes']} bytes")
            continue
        path = f"{folder}/{row['file']}"
        running = models.session(path)
        name = running.get_inputs()[0].name
        y = np.concatenate([running.run(None, {name: x[i:i + 500]})[0] for i in range(0, len(x), 500)])
        accuracy = float(np.mean(y.argmax(1) == labels))
        # A dynamic range follows from the batch, and batches differ here.
        check(abs(accuracy - row["accuracy"]) <= 0.001 and os.path.getsize(path) == row["bytes"],
              f"{model} {row['scheme']}: {row['accuracy']:.4f} stated, {accuracy:.4f} in ONNX Runtime, "
              f"{row['bytes'] / result['float']['bytes']:.3f} of the float file")


def kill_half_way(kaon, folder):
    words = [kaon, "quickstart", "-o", folder, "--epochs", "1", "--limit", "6000", "-q"]
    for seconds in (1.0, 2.0, 3.0):
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        process.wait()
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            if name.endswith(".onnx"):
                models.session(f"{folder}/{name}")
    check(True, "killed after 1, 2 and 3 s, every .onnx file in the folder loads")
    done = subprocess.run(words, stdout=subprocess.DEVNULL)
    check(done.returncode == 0 and os.path.exists(f"{folder}/results.json"), "and the next run ends well")


def main():
    kaon = sys.argv[1]
    if not os.path.exists(f"{DATA}/t10k-images-idx3-ubyte.gz"):
        print("no Fashion-MNIST (apt install dataset-fashion-mnist): nothing compared")
        return 0
    x = idx("t10k-images-idx3-ubyte.gz", 16).reshape(-1, 1, 28, 28).astype(np.float32) / np.float32(255)
    labels = idx("t10k-labels-idx1-ubyte.gz", 8)
    with tempfile.TemporaryDirectory() as work:
        for model in ("mlp", "mobilenet"):
            compare(kaon, model, f"{work}/{model}", x, labels)
        kill_half_way(kaon, f"{work}/killed")
    print(f"{len(failures)} wrong")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
