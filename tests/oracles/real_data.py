"""What the oracle scripts feed to models: real images, faces and texts, and sounds made here."""
import os

import numpy as np
from models import make_inputs
from PIL import Image


def vowel(samples):
    """The harmonics of 120 Hz through three formants, at 16 kHz."""
    seconds = np.arange(samples) / 16000
    formants = ((700, 110), (1220, 120), (2600, 160))
    voice = sum(np.sin(2 * np.pi * hertz * seconds) * sum(1 / (1 + ((hertz - centre) / width) ** 2)
                                                          for centre, width in formants)
                for hertz in range(120, 4000, 120))
    return (voice / np.abs(voice).max() * 0.5).astype(np.float32)[None]


class Data:
    """The real inputs in `folder`, made ready as each model's author says."""

    def __init__(self, folder):
        self.folder = folder

    def cifar_file(self):
        return os.path.join(self.folder, "cifar10", "test_batch.bin")

    def cifar_rows(self, first, count):
        """A class, then the pixels."""
        return np.fromfile(self.cifar_file(), np.uint8, count * 3073, offset=first * 3073).reshape(-1, 3073)

    def cifar(self, first, count):
        """Pixels 0..255 as float32, NCHW."""
        return self.cifar_rows(first, count)[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32)

    def cifar_labels(self, first, count):
        return self.cifar_rows(first, count)[:, 0].astype(np.int64)

    def imagenet_names(self, first, count, kind):
        return sorted(os.listdir(os.path.join(self.folder, "imagenet", kind)))[first:first + count]

    def imagenet(self, first, count, kind="val"):
        """The middle 224 × 224 pixels of each."""
        folder = os.path.join(self.folder, "imagenet", kind)
        images = [self.pixels(os.path.join(folder, name)) for name in self.imagenet_names(first, count, kind)]
        return np.stack([x[:, (h := (x.shape[1] - 224) // 2):h + 224, (w := (x.shape[2] - 224) // 2):w + 224]
                         for x in images])

    def imagenet_labels(self, first, count, kind="val"):
        with open(os.path.join(self.folder, "imagenet", f"{kind}_labels.txt")) as file:
            labels = dict(line.split("\t") for line in file.read().splitlines())
        return np.array([int(labels[name]) for name in self.imagenet_names(first, count, kind)], np.int64)

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

    def images(self, stem, first, count, kind="val"):
        """Inputs of a classifier, or None for other models."""
        if stem.startswith(("resnet20", "resnet56")):
            mean, std = (np.array(v, np.float32)[:, None, None] for v in ([.485, .456, .406], [.229, .224, .225]))
            return (self.cifar(first, count) / 255 - mean) / std
        if stem.startswith("resnet8"):
            return self.cifar(first, count)
        if stem.startswith("mobilenetv2"):
            return (self.imagenet(first, count, kind) - 127.5) / 127.5
        if stem.startswith("etinynet"):
            return self.imagenet(first, count, kind) - 128
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
