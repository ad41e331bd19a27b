"""ranking.py KAON FOLDER...: `kaon debug` ranks quantizers by what the outputs gain without them.

The text recogniser is shown lines of text. For the layers at the top of the ranking and some of the rest, each left out
by `kaon eval --exclude`, the outputs' true gain has the order of the ranking's."""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
from PIL import Image, ImageDraw, ImageFont

MODEL = "ch_PP-OCRv4_rec_infer.onnx"
CULPRIT = "p2o.Conv.1"
LINES = ["Quantization 8", "error of a layer", "the first five", "SQNR 46.7 dB"]
TRIED = 4  # of each end, and of the middle
LEAST_CORRELATION = 0.9


def text_line(text):
    image = Image.new("RGB", (320, 48), "white")
    ImageDraw.Draw(image).text((6, 4), text, fill="black", font=ImageFont.load_default(32))
    return (np.asarray(image, np.float32).transpose(2, 0, 1) / 255 - 0.5) / 0.5


def correlation(a, b):
    ranks = [np.argsort(np.argsort(values)) for values in (a, b)]
    return float(np.corrcoef(*ranks)[0, 1])


def error_share(kaon, model, data, *more):
    """Power of the outputs' error over the outputs' own."""
    output = subprocess.run([kaon, "eval", model, "--data", data, "--scheme", "w8c", "--metric", "sqnr_db", "--json",
                             "-q", *more], check=True, stdout=subprocess.PIPE).stdout
    return 10 ** (-json.loads(output)["metrics"]["sqnr_db"] / 10)


def main():
    kaon, *folders = sys.argv[1:]
    paths = [path for folder in folders if os.path.exists(path := os.path.join(folder, MODEL))]
    if not paths:
        print(f"{MODEL} is not there; not ranked")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "lines.npz")
        np.savez(data, x=np.stack([text_line(line) for line in LINES]))
        report = os.path.join(folder, "report")
        subprocess.run([kaon, "debug", paths[0], "--data", data, "--scheme", "w8c", "-o", report, "-q"], check=True,
                       stdout=subprocess.DEVNULL)
        rows = json.load(open(os.path.join(report, "summary.json")))["quantizers"]
        middle = len(rows) // 2
        tried = rows[:TRIED] + rows[middle:middle + TRIED] + rows[-TRIED:]
        whole = error_share(kaon, paths[0], data)
        true = [1 - error_share(kaon, paths[0], data, "--exclude", row["layer"]) / whole for row in tried]
    for row, gain in zip(tried, true):
        print(f"{row['layer']}: {row['output_gain']:.4f} in the ranking, {gain:.4f} without it")
    place = [row["layer"] for row in rows].index(CULPRIT) + 1
    agreed = correlation([row["output_gain"] for row in tried], true)
    print(f"{CULPRIT} is number {place} of {len(rows)}; rank correlation {agreed:.3f}")
    return 0 if place <= 5 and agreed >= LEAST_CORRELATION else 1


sys.exit(main())
