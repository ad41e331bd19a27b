"""real_models.py KAON FOLDER...: Kaon runs real models as ONNX Runtime does, on real inputs where there are some.

Each output must be as near to ONNX Runtime without optimisations as ONNX Runtime with optimisations is, and 3 dB are
allowed; 100 dB is always enough. Top-1 over 1000 images may differ in 2 of them."""
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnxruntime as ort
from models import find_models, make_inputs, session, worst_sqnr
from PIL import Image

ALLOWED_DB = 3.0
ENOUGH_DB = 100.0
IMAGES = 1000
ALLOWED_IMAGES = 2
FAILURES = []


class Data:
    """The real inputs in `folder`, made ready as each model's author says."""

    def __init__(self, folder):
        self.folder = folder

    def cifar(self, first, count):
        """Pixels 0..255 as float32, NCHW."""
        path = os.path.join(self.folder, "cifar10", "test_batch.bin")
        rows = np.fromfile(path, np.uint8, count * 3073, offset=first * 3073).reshape(-1, 3073)
        return rows[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32)

    def imagenet(self, first, count):
        folder = os.path.join(self.folder, "imagenet", "val")
        names = sorted(os.listdir(folder))[first:first + count]
        return np.stack([self.pixels(os.path.join(folder, name)) for name in names])

    def faces(self):
        return self.pixels(os.path.join(self.folder, "faces_test.jpg"), (320, 240))[None]

    def story_ids(self, count):
        with np.load(os.path.join(self.folder, "text", "tinystories_ids.npz")) as arrays:
            return arrays["input_ids"][:count]

    @staticmethod
    def pixels(path, size=None):
        image = Image.open(path).convert("RGB")
        if size:
            image = image.resize(size)
        return np.asarray(image, np.float32).transpose(2, 0, 1)

    def images(self, stem, first, count):
        """Inputs of a classifier, or None for other models."""
        if stem.startswith(("resnet20", "resnet56")):
            mean, std = (np.array(v, np.float32)[:, None, None] for v in ([.485, .456, .406], [.229, .224, .225]))
            return (self.cifar(first, count) / 255 - mean) / std
        if stem.startswith("resnet8"):
            return self.cifar(first, count)
        if stem.startswith("mobilenetv2"):
            return (self.imagenet(first, count) - 127.5) / 127.5
        if stem.startswith("etinynet"):
            return self.imagenet(first, count) - 128
        return None

    def feeds(self, path, running):
        """(inputs for one run, what they are)"""
        stem = os.path.splitext(os.path.basename(path))[0]
        name = running.get_inputs()[0].name
        images = self.images(stem, 0, 4)
        if images is not None:
            return {name: images.astype(np.float32)}, "images"
        if stem.startswith("ultraface"):
            return {name: (self.faces() - 127) / 128}, "faces"
        if "PP-OCR" in stem:
            # A strip of the photograph: no text, but what a camera sees.
            strip = Image.fromarray(self.faces()[0].transpose(1, 2, 0).astype(np.uint8)).resize((320, 48))
            return {name: ((np.asarray(strip, np.float32).transpose(2, 0, 1) / 255 - .5) / .5)[None]}, "a photograph"
        if os.path.basename(os.path.dirname(path)) == "stories260K":
            return {name: self.story_ids(4)}, "stories"
        if stem == "magika":
            with open(__file__, "rb") as file:
                return {name: np.frombuffer(file.read(2048), np.uint8).astype(np.int32)[None]}, "this script"
        if stem == "basic_pitch":
            seconds = np.arange(43844) / 22050
            chord = sum(np.sin(2 * np.pi * hertz * seconds) for hertz in (220, 277.18, 329.63)) / 3
            return {name: chord.astype(np.float32)[None, :, None]}, "a chord"
        feeds = make_inputs(path, running)
        if stem.startswith("silero"):
            # To noise the answer is a tiny probability, where ONNX Runtime's own Sigmoid is only good to 5e-5.
            feeds.update(input=vowel(576), state=np.zeros([2, 1, 128], np.float32))
            return feeds, "a vowel"
        return feeds, "noise"


def vowel(samples):
    """The harmonics of 120 Hz through three formants, at 16 kHz."""
    seconds = np.arange(samples) / 16000
    formants = ((700, 110), (1220, 120), (2600, 160))
    voice = sum(np.sin(2 * np.pi * hertz * seconds) * sum(1 / (1 + ((hertz - centre) / width) ** 2)
                                                          for centre, width in formants)
                for hertz in range(120, 4000, 120))
    return (voice / np.abs(voice).max() * 0.5).astype(np.float32)[None]


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
    options.intra_op_num_threads = 2
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


def compare_top1(kaon, path, data, scratch):
    stem = os.path.splitext(os.path.basename(path))[0]
    running = optimised(path)
    name, output = running.get_inputs()[0].name, running.get_outputs()[0].name
    batch = 100 if "imagenet" in stem else 500
    ours, theirs = [], []
    for first in range(0, IMAGES, batch):
        feeds = {name: data.images(stem, first, batch).astype(np.float32)}
        theirs.append(np.concatenate([running.run(None, {name: feeds[name][i:i + 8]})[0] for i in range(0, batch, 8)]))
        ours.append(run_kaon(kaon, path, feeds, [output], scratch)[0])
    ours, theirs = (np.concatenate(v).argmax(1) for v in (ours, theirs))
    assert len(ours) == len(theirs) == IMAGES
    different = int((ours != theirs).sum())
    bad = check(different <= ALLOWED_IMAGES, path + " top-1")
    print(f"{stem}: top-1 differs on {different} of {IMAGES} images{bad}")


def main():
    kaon, shared, *more = sys.argv[1:]
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
                compare_top1(kaon, path, data, scratch)
    for failure in FAILURES:
        print("failed:", failure)
    sys.exit(1 if FAILURES else 0)


if __name__ == "__main__":
    main()
