"""images.py READ_DATASET MODELS...: images come out of a description as the bytes that Pillow gives.

Real photographs and hand-made files of every kind are decoded, resized and cropped; each pixel must be equal. The
photographs lie in the folder `data` beside the models."""
import json
import os
import struct
import subprocess
import sys
import tempfile
import warnings
import zlib

import numpy as np
from PIL import Image

FAILURES = []


def check(holds, what):
    if not holds:
        print("failed:", what)
        FAILURES.append(what)


def read(tool, scratch, description):
    """The samples of a description, with pixels left as they are."""
    path, out = os.path.join(scratch, "data.json"), os.path.join(scratch, "out.npz")
    with open(path, "w") as file:
        json.dump({"scale": 1, **description}, file)
    done = subprocess.run([tool, path, out], capture_output=True, text=True, timeout=300)
    check(done.returncode == 0, f"{description}: {done.stderr.strip()}")
    if done.returncode != 0:
        return []
    with np.load(out) as arrays:
        return [arrays[str(i)] for i in range(len([name for name in arrays.files if name != "labels"]))]


def expected(path, description):
    """torchvision's Resize and CenterCrop on Pillow, as they compute sizes."""
    gray = description.get("color") == "gray"
    image = Image.open(path)
    if image.mode == "I;16":  # Pillow would saturate
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    image = image.convert("L" if gray else "RGB")
    if "resize" in description:
        size, (width, height) = description["resize"], image.size
        if isinstance(size, list):
            size = (size[1], size[0])
        else:
            longer = int(size * max(width, height) / min(width, height))
            size = (size, longer) if width <= height else (longer, size)
        # Across, then down, as Pillow always did before it chose the cheaper order (seen in version 13).
        for size in ((size[0], height), size):
            image = image.resize(size, Image.Resampling.BILINEAR)
    if "crop" in description:
        crop = description["crop"]
        high, wide = crop if isinstance(crop, list) else (crop, crop)
        left, top = (int(round((side - part) / 2.0)) for side, part in zip(image.size, (wide, high)))
        image = image.crop((left, top, left + wide, top + high))
    pixels = np.asarray(image)
    pixels = pixels[:, :, None] if gray else pixels
    if description.get("color") == "bgr":
        pixels = pixels[:, :, ::-1]
    return pixels[None] if description.get("layout") == "nhwc" else pixels.transpose(2, 0, 1)[None]


def compare(tool, scratch, folder, what, **description):
    files = sorted(os.listdir(folder), key=os.fsencode)[: description.get("limit")]
    samples = read(tool, scratch, {"images": folder, **description})
    check(len(samples) == len(files), f"{what}: {len(samples)} samples of {len(files)} files")
    for name, sample in zip(files, samples):
        wanted = expected(os.path.join(folder, name), description)
        same = sample.shape == wanted.shape and np.array_equal(sample, wanted)
        if not same and sample.shape == wanted.shape:
            gap = np.abs(sample - wanted)
            name = f"{name}: {np.count_nonzero(gap)} of {gap.size} pixels differ, by up to {gap.max()}"
        check(same, f"{what} {description}: {name}")
    print(f"{what} {description}: {len(samples)} images")


def write_png(path, pixels, depth, color, palette=None, transparent=None):
    """A PNG of any kind; Pillow writes but a few."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    height, width = pixels.shape[:2]
    rows = pixels.reshape(height, -1)
    if depth == 16:
        rows = rows.astype(">u2").view(np.uint8)
    elif depth < 8:
        bits = np.unpackbits(rows.astype(np.uint8)[:, :, None], axis=2)[:, :, 8 - depth:].reshape(height, -1)
        rows = np.packbits(bits, axis=1)
    raw = b"".join(b"\0" + row.astype(np.uint8).tobytes() for row in rows)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)))
        if palette is not None:
            file.write(chunk(b"PLTE", palette.astype(np.uint8).tobytes()))
        if transparent is not None:
            file.write(chunk(b"tRNS", transparent))
        file.write(chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b""))


def make_pngs(folder):
    random = np.random.default_rng(1)
    for name, color, channels, depths in [("gray", 0, 1, [1, 2, 4, 8, 16]), ("rgb", 2, 3, [8, 16]),
                                          ("gray_alpha", 4, 2, [8, 16]), ("rgb_alpha", 6, 4, [8, 16])]:
        for depth in depths:
            pixels = random.integers(0, 1 << depth, (37, 53, channels))
            write_png(os.path.join(folder, f"{name}{depth}.png"), pixels, depth, color)
    for depth in [1, 2, 4, 8]:
        pixels = random.integers(0, 1 << depth, (37, 53, 1))
        palette = random.integers(0, 256, (1 << depth, 3))
        write_png(os.path.join(folder, f"palette{depth}.png"), pixels, depth, 3, palette)
        write_png(os.path.join(folder, f"palette{depth}_clear.png"), pixels, depth, 3, palette, b"\x00\x80")
    write_png(os.path.join(folder, "gray8_clear.png"), random.integers(0, 256, (9, 9, 1)), 8, 0, None, b"\x00\x07")
    write_png(os.path.join(folder, "rgb8_clear.png"), random.integers(0, 256, (9, 9, 3)), 8, 2, None, b"\0\1\0\2\0\3")
    return folder


def make_jpegs(folder, photograph):
    photo = Image.open(photograph).convert("RGB")
    for size in [(1, 1), (7, 9), (64, 48), (333, 251)]:
        image = photo.resize(size)
        for subsampling in ["4:4:4", "4:2:2", "4:2:0", "4:1:1"]:
            for progressive in [False, True]:
                name = f"{size[0]}x{size[1]}_{subsampling.replace(':', '')}_{progressive}.jpg"
                image.save(os.path.join(folder, name), quality=83, subsampling=subsampling, progressive=progressive)
        image.convert("L").save(os.path.join(folder, f"{size[0]}x{size[1]}_gray.jpg"))
        image.convert("CMYK").save(os.path.join(folder, f"{size[0]}x{size[1]}_cmyk.jpg"))
    photo.resize((50, 40)).save(os.path.join(folder, "rgb_kept.jpg"), keep_rgb=True)
    photo.resize((50, 40)).save(os.path.join(folder, "restart.jpeg"), restart_marker_blocks=3)


def main():
    tool, data = sys.argv[1], os.path.join(os.path.dirname(os.path.abspath(sys.argv[2])), "data")
    photos = os.path.join(data, "imagenet", "calib")
    warnings.filterwarnings("ignore", "Palette images with Transparency")
    with tempfile.TemporaryDirectory() as scratch:
        pngs, jpegs, faces = (os.path.join(scratch, name) for name in ("png", "jpeg", "faces"))
        for folder in (pngs, jpegs, faces):
            os.mkdir(folder)
        make_pngs(pngs)
        for color in ("rgb", "gray", "bgr"):
            compare(tool, scratch, pngs, "made PNGs", color=color)
        if not os.path.isdir(photos):
            print(f"skipped: {photos} is not there; photographs were not compared")
            sys.exit(1 if FAILURES else 0)
        os.symlink(os.path.join(data, "faces_test.jpg"), os.path.join(faces, "faces.jpg"))
        make_jpegs(jpegs, os.path.join(data, "faces_test.jpg"))
        for color in ("rgb", "gray"):
            compare(tool, scratch, jpegs, "made JPEGs", color=color)
            compare(tool, scratch, jpegs, "made JPEGs", color=color, resize=31)
        compare(tool, scratch, photos, "photographs")
        compare(tool, scratch, photos, "photographs", resize=256, crop=224)
        compare(tool, scratch, photos, "photographs", resize=257, crop=224, limit=20)
        compare(tool, scratch, photos, "photographs", resize=40, layout="nhwc", color="bgr", limit=20)
        compare(tool, scratch, photos, "photographs", resize=801, color="gray", limit=5)
        compare(tool, scratch, photos, "photographs", crop=97, limit=20)
        compare(tool, scratch, photos, "photographs", resize=[240, 320], crop=[97, 224], limit=20)
        compare(tool, scratch, photos, "photographs", resize=256, crop=[200, 256], limit=20)
        compare(tool, scratch, faces, "a large photograph", resize=240)
    sys.exit(1 if FAILURES else 0)


if __name__ == "__main__":
    main()
