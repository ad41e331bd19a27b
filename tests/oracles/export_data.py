"""Samples to calibrate and compare on: the real data beside the models where there is some, else random inputs."""
import json
import os
import zlib

import numpy as np
from models import make_inputs, session

IMAGENET = {"resize": 224, "crop": 224, "color": "rgb", "layout": "nchw", "scale": 1}
CIFAR = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225], "scale": 1 / 255}
# What each model was trained on: (kind, preprocessing), by the start of the file's name.
REAL = {
    "mobilenetv2": ("images", {**IMAGENET, "mean": [127.5] * 3, "std": [127.5] * 3}),
    "etinynet": ("images", {**IMAGENET, "mean": [128] * 3, "std": [1] * 3}),
    "resnet20": ("cifar", CIFAR),
    "resnet56": ("cifar", CIFAR),
    "resnet8": ("cifar", {"scale": 1, "mean": [0] * 3, "std": [1] * 3}),
}


def description(stem, data, first, limit):
    """A description for open_dataset, or None where there is no real data."""
    kind, words = next((v for k, v in REAL.items() if stem.startswith(k)), (None, None))
    if kind == "images":
        source = os.path.join(data, "imagenet", "calib")
    elif kind == "cifar":
        source = os.path.join(data, "cifar10", "test_batch.bin")
    else:
        return None
    return {kind: source, **words, "first": first, "limit": limit} if os.path.exists(source) else None


def random_samples(path, count, seed):
    """Arrays of `count` samples, one behind the other on the first axis."""
    running = session(path)
    samples = []
    for i in range(count):
        feeds = make_inputs(path, running)
        random = np.random.default_rng(zlib.crc32(f"{seed} {i}".encode()))
        for name, value in feeds.items():
            if value.dtype.kind == "f":
                feeds[name] = random.standard_normal(value.shape).astype(value.dtype)
            elif value.ndim > 1 and value.max() > 1:
                feeds[name] = random.integers(0, 100, value.shape).astype(value.dtype)
        samples.append(feeds)
    if any(value.ndim == 0 or value.shape[0] != 1 for value in samples[0].values()):
        return None
    return {name: np.concatenate([sample[name] for sample in samples]) for name in samples[0]}


def prepare(path, data, scratch, calibrate, compare):
    """Two files for simulate_dump: to calibrate on and to compare on; or None where the inputs do not stack."""
    stem = os.path.splitext(os.path.basename(path))[0]
    files = []
    for name, first, count in (("calib", 0, calibrate), ("data", calibrate, compare)):
        words = description(stem, data, first, count)
        if words:
            files.append(os.path.join(scratch, name + ".json"))
            with open(files[-1], "w") as file:
                json.dump(words, file)
            continue
        files.append(os.path.join(scratch, name + ".npz"))
        ids = os.path.join(data, "text", "tinystories_ids.npz")
        if "stories260K" in path and os.path.exists(ids):
            arrays = {"input_ids": np.load(ids)["input_ids"][first:first + count, :64]}
        else:
            arrays = random_samples(path, count, name)
        if arrays is None:
            return None
        np.savez(files[-1], **arrays)
    return files
